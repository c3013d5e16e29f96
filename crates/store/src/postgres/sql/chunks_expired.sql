-- $1 the known job types, $2 after how long one of any other type is abandoned, $3 limit
SELECT c.id, c.fence, c.attempt, j.job_type, j.dataset, j.status = 'CANCELLED' AS cancelled,
       clock_timestamp() - c.lease_until AS overdue
FROM outhaul.job_chunk c
JOIN outhaul.job j ON j.id = c.job_id
WHERE c.state = 'RUNNING' AND c.lease_until < clock_timestamp()
  AND (j.job_type = ANY($1::text[]) OR c.lease_until < clock_timestamp() - $2::interval)
ORDER BY c.id
LIMIT $3
