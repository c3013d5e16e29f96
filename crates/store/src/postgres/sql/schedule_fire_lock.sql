-- Takes a schedule that is as it was when its jobs were made. One that another scheduler is firing is not
-- waited for.
SELECT id
FROM outhaul.schedule
WHERE id = $1 AND version = $2 AND next_slot = $3 AND NOT paused
FOR NO KEY UPDATE SKIP LOCKED
