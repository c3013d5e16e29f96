-- ?1 now
SELECT (SELECT count(*)
        FROM announcement AS a
        CROSS JOIN job_chunk AS c ON c.id = a.chunk_id
        WHERE a.until > ?1 AND c.state = 'QUEUED' AND c.fence = a.fence) AS announced,
       (SELECT count(*) FROM outbox) AS outbox,
       coalesce((SELECT ?1 - o.created_at FROM outbox AS o ORDER BY o.id LIMIT 1), 0) AS oldest
