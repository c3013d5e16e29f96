SELECT q.id, q.name, q.max_concurrent, q.paused,
       coalesce(w.depth, 0) AS depth, w.oldest, coalesce(r.running, 0) AS running
FROM queue AS q
LEFT JOIN (SELECT queue_id, count(*) AS depth, min(turn) AS oldest
           FROM job_chunk WHERE state = 'QUEUED' GROUP BY queue_id) AS w ON w.queue_id = q.id
LEFT JOIN (SELECT queue_id, count(*) AS running
           FROM job_chunk WHERE state = 'RUNNING' GROUP BY queue_id) AS r ON r.queue_id = q.id
ORDER BY q.name
