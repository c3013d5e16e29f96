SELECT w.id, w.host, w.roles, w.concurrency, w.started_at, w.last_seen_at, q.name AS queue, r.running
FROM outhaul.worker w
LEFT JOIN (
    SELECT c.worker_id, c.queue_id, count(*) AS running
    FROM outhaul.job_chunk c
    WHERE c.state = 'RUNNING'
    GROUP BY c.worker_id, c.queue_id
) r ON r.worker_id = w.id
LEFT JOIN outhaul.queue q ON q.id = r.queue_id
WHERE w.last_seen_at > now() - $1::interval
ORDER BY w.id, q.name
