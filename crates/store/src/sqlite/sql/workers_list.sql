-- ?1 seen after. `running` is {queue name: chunks}.
SELECT w.id, w.host, w.roles, w.concurrency, w.started_at, w.last_seen_at,
       (SELECT json_group_object(r.name, r.chunks)
        FROM (SELECT q.name, count(*) AS chunks
              FROM job_chunk AS c JOIN queue AS q ON q.id = c.queue_id
              WHERE c.state = 'RUNNING' AND c.worker_id = w.id
              GROUP BY q.name) AS r) AS running
FROM worker AS w
WHERE w.last_seen_at > ?1
ORDER BY w.id
