-- ?1 [chunk, …], ?2 now, ?3 wait, ?4 the longest that it grows to
UPDATE announcement
SET standing = 'deferred', until = min(until, ?2 + min(?3 << waits, max(?3, ?4))),
    waits = CASE standing WHEN 'deferred' THEN waits ELSE min(waits + 1, 5) END
WHERE (queue_id, chunk_id) IN (SELECT c.queue_id, c.id
                               FROM json_each(?1) AS named
                               CROSS JOIN job_chunk AS c ON c.id = named.value)
