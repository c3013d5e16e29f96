-- Dead chunks as the parking queue is told of them. One that dies again before anyone claimed it has the
-- same message id, and is told once. ?1 [chunk, …], ?2 now
INSERT INTO outbox (message_id, body, created_at)
SELECT dead.message_id,
       json_object('messageId', dead.message_id, 'jobId', dead.job_id, 'chunkKey', dead.chunk_key,
                   'key', dead.key, 'effectiveDate', replace(dead.effective_date, '-', ''),
                   'attempts', dead.attempt, 'cause', dead.cause),
       ?2
FROM (
    SELECT j.job_id || '/' || c.chunk_key || '/' || c.fence AS message_id, j.job_id,
           c.chunk_key, c.key, c.effective_date, c.attempt, coalesce(c.error_detail, c.error_message) AS cause
    FROM json_each(?1) AS died
    CROSS JOIN job_chunk AS c ON c.id = died.value
    CROSS JOIN job AS j ON j.id = c.job_id
    ORDER BY died.key
) AS dead
WHERE true
ON CONFLICT (message_id) DO NOTHING
