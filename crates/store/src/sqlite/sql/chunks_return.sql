-- ?1 [[chunk, fence], …], ?2 how often in a row
UPDATE job_chunk
SET state = 'QUEUED', attempt = attempt - 1, returned = returned + 1, lease_until = NULL, worker_id = NULL
FROM json_each(?1) AS lease
WHERE job_chunk.id = lease.value ->> 0 AND job_chunk.fence = lease.value ->> 1 AND job_chunk.state = 'RUNNING'
  AND job_chunk.returned < ?2
RETURNING id, fence, job_id, started_at
