-- ?1 [chunk, …], ?2 cause, ?3 now
UPDATE job_chunk
SET state = 'DEAD', error_message = ?2, error_detail = NULL, completed_at = ?3,
    first_failed_at = coalesce(first_failed_at, ?3)
WHERE id IN (SELECT value FROM json_each(?1)) AND state = 'CREATED'
