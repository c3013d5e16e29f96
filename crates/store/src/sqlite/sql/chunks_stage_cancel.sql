-- ?1 limit, ?2 now
UPDATE job_chunk
SET state = 'CANCELLED', held = 0, completed_at = ?2
WHERE id IN (SELECT c.id
             FROM job AS j INDEXED BY job_closing
             CROSS JOIN job_chunk AS c INDEXED BY chunk_pending ON c.job_id = j.id
             WHERE j.completed_at IS NULL AND j.status IN ('FAILED', 'CANCELLED') AND j.status = 'CANCELLED'
               AND c.state IN ('CREATED', 'QUEUED', 'RETRY')
             LIMIT ?1)
RETURNING job_id
