-- One that another scheduler is firing is not waited for.
SELECT id FROM outhaul.trigger_fire WHERE id = $1 AND state || '' = 'due' FOR NO KEY UPDATE SKIP LOCKED
