-- ?1 [[chunk, fence], …], ?2 lease until, ?3 worker
UPDATE job_chunk
SET lease_until = ?2
FROM json_each(?1) AS lease
WHERE job_chunk.id = lease.value ->> 0 AND job_chunk.fence = lease.value ->> 1 AND job_chunk.state = 'RUNNING'
  AND job_chunk.worker_id = ?3
RETURNING id, fence
