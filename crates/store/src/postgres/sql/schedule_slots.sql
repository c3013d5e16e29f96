SELECT l.slot, l.outcome, l.job_id, l.detail, l.at
FROM outhaul.schedule_slot l
WHERE l.schedule_id = (SELECT id FROM outhaul.schedule WHERE name = $1)
ORDER BY l.slot DESC
LIMIT $2
