-- ?1 now, ?2 limit
SELECT c.id, c.job_id, c.state, c.attempt
FROM job_chunk AS c INDEXED BY chunk_due
CROSS JOIN job AS j ON j.id = c.job_id
WHERE c.state IN ('CREATED', 'RETRY') AND c.held = 0 AND c.waits_for = 0
  AND coalesce(c.run_at, 0) <= ?1
  AND j.status IN ('SUBMITTED', 'IN_PROGRESS') AND j.waits_for = 0
ORDER BY coalesce(c.run_at, 0)
LIMIT ?2
