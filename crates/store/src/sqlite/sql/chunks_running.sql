-- ?1 [[chunk, fence], …]
SELECT c.id, c.fence
FROM json_each(?1) AS lease
CROSS JOIN job_chunk AS c ON c.id = lease.value ->> 0
WHERE c.fence = lease.value ->> 1 AND c.state = 'RUNNING'
