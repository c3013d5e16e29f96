-- Jobs whose counts differ from their chunks, or whose status does not follow from their counts, with
-- what is missing. In random order, so that many jobs that merely wait cannot hide a wrong one.
-- ?1 not moved since, ?2 limit
SELECT job, done, failed, cancelled, reused, rows, bytes
FROM (
    SELECT j.id AS job, j.status, j.on_failure, j.total,
           j.done AS done_now, j.failed AS failed_now, j.cancelled AS cancelled_now,
           sum(c.state = 'SUCCESS') - j.done AS done,
           sum(c.state = 'DEAD') - j.failed AS failed,
           sum(c.state = 'CANCELLED') - j.cancelled AS cancelled,
           coalesce(sum(f.reused), 0) - j.reused AS reused,
           coalesce(sum(f.rows), 0) - j.rows AS rows,
           coalesce(sum(f.bytes), 0) - j.bytes AS bytes
    FROM (SELECT * FROM job
          WHERE completed_at IS NULL AND updated_at < ?1
          ORDER BY random() LIMIT ?2) AS j
    CROSS JOIN job_chunk AS c ON c.job_id = j.id
    LEFT JOIN chunk_file AS f ON f.chunk_id = c.id
    GROUP BY j.id
)
WHERE done <> 0 OR failed <> 0 OR cancelled <> 0 OR reused <> 0 OR rows <> 0 OR bytes <> 0
   OR (status IN ('SUBMITTED', 'IN_PROGRESS')
       AND (done_now = total
            OR (failed_now > 0 AND (on_failure = 'stop' OR done_now + failed_now + cancelled_now = total))))
