-- ?1 now, ?2 the known job types as JSON, ?3 when a lease must have run out for one of any other type, ?4 limit
SELECT c.id, c.fence, c.attempt, j.job_type, j.dataset, j.status = 'CANCELLED' AS cancelled,
       ?1 - c.lease_until AS overdue
FROM job_chunk AS c INDEXED BY chunk_running
CROSS JOIN job AS j ON j.id = c.job_id
WHERE c.state = 'RUNNING' AND c.lease_until < ?1
  AND (j.job_type IN (SELECT value FROM json_each(?2)) OR c.lease_until < ?3)
ORDER BY c.id
LIMIT ?4
