SELECT q.id, q.name, q.max_concurrent, q.paused, w.depth, w.oldest, COALESCE(r.running, 0) AS running
FROM outhaul.queue q
CROSS JOIN LATERAL (
    SELECT count(*) AS depth, min(c.turn) AS oldest
    FROM outhaul.job_chunk c
    WHERE c.queue_id = q.id AND c.state = 'QUEUED'
) w
LEFT JOIN (
    SELECT c.queue_id, count(*) AS running
    FROM outhaul.job_chunk c
    WHERE c.state = 'RUNNING'
    GROUP BY c.queue_id
) r ON r.queue_id = q.id
ORDER BY q.name
