-- ?1 [chunk, …], ?2 now
UPDATE job_chunk
SET state = 'CANCELLED', held = 0, completed_at = ?2
WHERE id IN (SELECT value FROM json_each(?1)) AND state IN ('CREATED', 'QUEUED', 'RETRY')
