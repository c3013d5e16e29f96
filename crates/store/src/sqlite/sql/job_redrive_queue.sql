-- ?1 [chunk, …], ?2 now, ?3 fairness step
UPDATE job_chunk
SET state = 'QUEUED', attempt = 0, held = 0, returned = 0, lost = 0, run_at = NULL,
    turn = coalesce(turn, ?2 + position * ?3), completed_at = NULL, error_message = NULL,
    step = NULL, first_failed_at = NULL
WHERE id IN (SELECT value FROM json_each(?1)) AND (state = 'DEAD' OR (state = 'CREATED' AND held = 1))
