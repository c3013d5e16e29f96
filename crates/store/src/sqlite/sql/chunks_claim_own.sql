-- ?1 [chunk, …], ?2 worker, ?3 now, ?4 lease until
UPDATE job_chunk
SET state = 'RUNNING', attempt = attempt + 1, fence = fence + 1, lease_until = ?4, worker_id = ?2,
    started_at = coalesce(started_at, ?3)
WHERE id IN (SELECT value FROM json_each(?1)) AND state = 'QUEUED'
