-- ?1 [chunk, …], ?2 now, ?3 fairness step
UPDATE job_chunk
SET state = 'QUEUED', run_at = NULL, turn = coalesce(turn, ?2 + position * ?3)
WHERE id IN (SELECT value FROM json_each(?1)) AND state IN ('CREATED', 'RETRY') AND held = 0
