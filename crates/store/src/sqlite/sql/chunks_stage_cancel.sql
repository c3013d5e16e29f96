-- ?1 limit, ?2 now
UPDATE job_chunk
SET state = 'CANCELLED', held = 0, completed_at = ?2, run_at = NULL
WHERE id IN (SELECT c.id
             FROM job AS j
             CROSS JOIN job_chunk AS c INDEXED BY job_chunk_pending ON c.job_id = j.id
             WHERE j.status IN ('FAILED', 'CANCELLED') AND j.status = 'CANCELLED' AND j.completed_at IS NULL
               AND c.state IN ('CREATED', 'QUEUED', 'RETRY')
             LIMIT ?1)
RETURNING id, fence, job_id, started_at
