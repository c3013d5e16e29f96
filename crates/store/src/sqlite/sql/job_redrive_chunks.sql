-- ?1 job, ?2 now, ?3 fairness step
UPDATE job_chunk
SET state = 'QUEUED', attempt = 0, held = 0, returned = 0, lost = 0, run_at = NULL,
    turn = coalesce(turn, ?2 + position * ?3), completed_at = NULL, error_message = NULL
WHERE job_id = ?1 AND (state = 'DEAD' OR (state = 'CREATED' AND held = 1))
