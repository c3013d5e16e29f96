-- ?1 [[chunk, fence], …], ?2 now
UPDATE job_chunk
SET state = 'CANCELLED', held = 0, completed_at = ?2, lease_until = NULL, worker_id = NULL
FROM json_each(?1) AS lease
WHERE job_chunk.id = lease.value ->> 0 AND job_chunk.fence = lease.value ->> 1 AND job_chunk.state = 'RUNNING'
  AND EXISTS (SELECT 1 FROM job AS j WHERE j.id = job_chunk.job_id AND j.status = 'CANCELLED')
RETURNING id, fence, job_id, started_at
