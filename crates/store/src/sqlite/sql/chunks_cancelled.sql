-- ?1 [[chunk, fence], …]
SELECT c.id, c.fence
FROM json_each(?1) AS lease
CROSS JOIN job_chunk AS c ON c.id = lease.value ->> 0
CROSS JOIN job AS j ON j.id = c.job_id
WHERE c.fence = lease.value ->> 1 AND c.state = 'RUNNING' AND j.status = 'CANCELLED'
