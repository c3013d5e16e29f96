-- ?1 [chunk, …]
UPDATE job_chunk
SET state = 'CREATED', held = 1
WHERE id IN (SELECT value FROM json_each(?1)) AND state IN ('CREATED', 'QUEUED', 'RETRY') AND held = 0
