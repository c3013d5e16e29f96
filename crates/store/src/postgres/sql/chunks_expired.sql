SELECT c.id, c.fence, c.attempt, j.job_type, j.dataset, j.status = 'CANCELLED' AS cancelled,
       clock_timestamp() - c.lease_until AS overdue
FROM job_chunk c
JOIN job j ON j.id = c.job_id
WHERE c.state = 'RUNNING' AND c.lease_until < clock_timestamp()
ORDER BY c.id
LIMIT $1
