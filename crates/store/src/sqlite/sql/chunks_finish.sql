-- The worker stays: the history tells who it was. ?1 [[chunk, fence], …], ?2 now
UPDATE job_chunk
SET state = 'SUCCESS', completed_at = ?2, lease_until = NULL, returned = 0, lost = 0,
    error_message = NULL, step = NULL, first_failed_at = NULL
FROM json_each(?1) AS lease
WHERE job_chunk.id = lease.value ->> 0 AND job_chunk.fence = lease.value ->> 1 AND job_chunk.state = 'RUNNING'
RETURNING id, fence, job_id, started_at
