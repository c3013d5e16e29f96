-- What every settled chunk does to its job: the counts move, and the status follows from them.
-- The only statement that decides COMPLETED and FAILED. A job that FAILED by `stop` gets its completed_at
-- from the stager, when none of its chunks runs any more.
-- ?1 [{job, done, failed, cancelled, reused, rows, bytes, started_at, error}, …], ?2 now
UPDATE job
SET done = after.done, failed = after.failed, cancelled = after.cancelled,
    reused = job.reused + after.reused, rows = job.rows + after.rows, bytes = job.bytes + after.bytes,
    status = after.status,
    completed_at = CASE WHEN job.completed_at IS NULL AND after.status <> job.status
                             AND (after.status = 'COMPLETED' OR (after.status = 'FAILED' AND after.on_failure = 'continue'))
                        THEN ?2 ELSE job.completed_at END,
    started_at = CASE WHEN after.started_at IS NULL THEN job.started_at
                      ELSE min(coalesce(job.started_at, after.started_at), after.started_at) END,
    error_message = coalesce(job.error_message, after.error),
    version = job.version + 1,
    updated_at = ?2
FROM (
    SELECT n.*,
           CASE WHEN n.was NOT IN ('SUBMITTED', 'IN_PROGRESS') THEN n.was
                WHEN n.done = n.total THEN 'COMPLETED'
                WHEN n.failed > 0 AND (n.on_failure = 'stop' OR n.done + n.failed + n.cancelled = n.total)
                THEN 'FAILED'
                ELSE 'IN_PROGRESS' END AS status
    FROM (
        SELECT j.id, j.status AS was, j.total, j.on_failure,
               j.done + (d.value ->> 'done') AS done,
               j.failed + (d.value ->> 'failed') AS failed,
               j.cancelled + (d.value ->> 'cancelled') AS cancelled,
               d.value ->> 'reused' AS reused,
               d.value ->> 'rows' AS rows,
               d.value ->> 'bytes' AS bytes,
               d.value ->> 'started_at' AS started_at,
               d.value ->> 'error' AS error
        FROM json_each(?1) AS d CROSS JOIN job AS j ON j.id = d.value ->> 'job'
    ) AS n
) AS after
WHERE job.id = after.id
