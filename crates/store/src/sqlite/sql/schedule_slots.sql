-- ?1 name, ?2 limit
SELECT l.slot, l.outcome, l.job_id, l.detail, l.at
FROM schedule_slot AS l
WHERE l.schedule_id = (SELECT s.id FROM schedule AS s WHERE s.name = ?1)
ORDER BY l.slot DESC
LIMIT ?2
