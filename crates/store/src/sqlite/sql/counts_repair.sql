-- By how much the counts of these jobs differ from their chunks; also jobs whose chunks are all settled
-- while they are not. ?1 [job, …]
SELECT job, done, failed, cancelled, reused, rows, bytes
FROM (
    SELECT j.id AS job,
           j.total = sum(c.state IN ('SUCCESS', 'DEAD', 'CANCELLED')) AS settled,
           sum(c.state = 'SUCCESS') - j.done AS done,
           sum(c.state = 'DEAD') - j.failed AS failed,
           sum(c.state = 'CANCELLED') - j.cancelled AS cancelled,
           coalesce(sum(f.reused), 0) - j.reused AS reused,
           coalesce(sum(f.rows), 0) - j.rows AS rows,
           coalesce(sum(f.bytes), 0) - j.bytes AS bytes
    FROM json_each(?1) AS due
    CROSS JOIN job AS j ON j.id = due.value
    CROSS JOIN job_chunk AS c ON c.job_id = j.id
    LEFT JOIN chunk_file AS f ON f.chunk_id = c.id
    GROUP BY j.id
)
WHERE settled OR (done, failed, cancelled, reused, rows, bytes) <> (0, 0, 0, 0, 0, 0)
