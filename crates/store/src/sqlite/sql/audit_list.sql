-- ?1 actor, ?2 job, ?3 act, ?4 before this place, ?5 limit
SELECT id, at, actor, act, job_id, detail
FROM audit
WHERE id < coalesce(?4, 9223372036854775807)
  AND (?1 IS NULL OR actor = ?1)
  AND (?2 IS NULL OR job_id = ?2)
  AND (?3 IS NULL OR act = ?3)
ORDER BY id DESC
LIMIT ?5
