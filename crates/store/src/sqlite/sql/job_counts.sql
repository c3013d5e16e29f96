-- What moved chunks do to their job: the counts move, and the status follows from them. The only
-- statement that decides COMPLETED and FAILED. A job about which nothing changes is not written; of those
-- that are, the ones that are COMPLETED now are told.
-- ?1 [{job, stopped, done, failed, cancelled, reused, rows, bytes, started_at, error, result}, …] by how much, ?2 now
UPDATE job
SET done = after.done, failed = after.failed, cancelled = after.cancelled,
    reused = after.reused, rows = after.rows, bytes = after.bytes,
    status = CASE WHEN job.status NOT IN ('SUBMITTED', 'IN_PROGRESS') THEN job.status
                  WHEN after.done = job.total THEN 'COMPLETED'
                  WHEN after.settled = job.total THEN 'FAILED'
                  WHEN after.failed > job.failed AND job.on_failure = 'stop' THEN 'FAILED'
                  ELSE 'IN_PROGRESS' END,
    completed_at = iif(after.settled = job.total, ?2, job.completed_at),
    started_at = iif(after.started_at IS NULL, job.started_at,
                     min(coalesce(job.started_at, after.started_at), after.started_at)),
    error_message = coalesce(job.error_message, after.error),
    result = coalesce(after.result, job.result),
    version = job.version + 1,
    updated_at = ?2
FROM (
    SELECT n.*, n.done + n.failed + n.cancelled AS settled
    FROM (
        SELECT j.id,
               j.done + (d.value ->> 'done') AS done,
               j.failed + (d.value ->> 'failed') AS failed,
               j.cancelled + (d.value ->> 'cancelled') AS cancelled,
               j.reused + (d.value ->> 'reused') AS reused,
               j.rows + (d.value ->> 'rows') AS rows,
               j.bytes + (d.value ->> 'bytes') AS bytes,
               d.value ->> 'stopped' AS stopped,
               d.value ->> 'started_at' AS started_at,
               d.value ->> 'error' AS error,
               d.value ->> 'result' AS result
        FROM json_each(?1) AS d CROSS JOIN job AS j ON j.id = d.value ->> 'job'
    ) AS n
) AS after
WHERE job.id = after.id
  AND (after.stopped
       OR job.status = 'SUBMITTED'
       OR (job.done, job.failed, job.cancelled, job.reused, job.rows, job.bytes)
          <> (after.done, after.failed, after.cancelled, after.reused, after.rows, after.bytes)
       OR (after.settled = job.total AND job.completed_at IS NULL))
RETURNING iif(job.status = 'COMPLETED', job.id, NULL)
