-- ?1 [chunk, …]
DELETE FROM announcement
WHERE (queue_id, chunk_id) IN (SELECT c.queue_id, c.id
                               FROM json_each(?1) AS named
                               CROSS JOIN job_chunk AS c ON c.id = named.value)
