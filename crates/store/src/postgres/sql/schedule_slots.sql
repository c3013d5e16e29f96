SELECT l.slot, l.outcome, l.job_id, l.detail, l.at
FROM schedule_slot l
WHERE l.schedule_id = (SELECT id FROM schedule WHERE name = $1)
ORDER BY l.slot DESC
LIMIT $2
