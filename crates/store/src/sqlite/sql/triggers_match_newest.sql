-- ?1 trigger, ?2 value, ?3 term, ?4 completed at or after, ?5 at or before, ?6 owner; null: anybody's job counts
SELECT job_id
FROM trigger_arrival
WHERE trigger_id = ?1 AND value = ?2 AND term = ?3 AND completed_at BETWEEN ?4 AND ?5
  AND (?6 IS NULL OR owner = ?6)
ORDER BY completed_at DESC, rowid DESC
LIMIT 1
