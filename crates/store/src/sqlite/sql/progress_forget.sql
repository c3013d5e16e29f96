-- ?1 [chunk, …], which are settled
DELETE FROM chunk_progress WHERE chunk_id IN (SELECT value FROM json_each(?1))
