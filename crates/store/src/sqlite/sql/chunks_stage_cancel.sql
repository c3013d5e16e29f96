-- ?1 limit
SELECT c.id, c.job_id, c.state, c.attempt
FROM job AS j INDEXED BY job_closing
CROSS JOIN job_chunk AS c INDEXED BY chunk_pending ON c.job_id = j.id
WHERE j.completed_at IS NULL AND j.status IN ('FAILED', 'CANCELLED') AND j.status = 'CANCELLED'
  AND c.state IN ('CREATED', 'QUEUED', 'RETRY')
LIMIT ?1
