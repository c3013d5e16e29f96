-- ?1 chunk, ?2 fence, ?3 sleeps until
UPDATE job_chunk
SET state = 'CREATED', attempt = attempt - 1, run_at = ?3, returned = 0,
    lease_until = NULL, worker_id = NULL
WHERE id = ?1 AND fence = ?2 AND state = 'RUNNING'
RETURNING id, fence, job_id, started_at
