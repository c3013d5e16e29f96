-- Chunks that fail with what their job waited for.
WITH released AS MATERIALIZED (
    SELECT j.id FROM outhaul.job j WHERE j.released = 'fail' AND j.status = 'FAILED' ORDER BY j.id LIMIT $1
), picked AS MATERIALIZED (
    SELECT c.id, c.attempt, (SELECT j.error_message FROM outhaul.job j WHERE j.id = c.job_id) AS cause, clock_timestamp() AS at
    FROM outhaul.job_chunk c
    WHERE c.job_id = ANY (ARRAY(SELECT id FROM released))
      AND c.state IN ('CREATED', 'QUEUED', 'RETRY') AND c.state = 'CREATED' AND NOT c.held
    ORDER BY c.id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), told AS (
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state, cause)
    SELECT p.id, p.at, NULL, p.attempt, 'CREATED', 'DEAD', p.cause FROM picked p
), moved AS (
    UPDATE outhaul.job_chunk c
    SET state = 'DEAD', error_message = p.cause, error_detail = NULL, completed_at = p.at,
        first_failed_at = COALESCE(c.first_failed_at, p.at)
    FROM picked p
    WHERE c.id = p.id
    RETURNING c.id, c.fence, c.job_id, c.attempt, c.chunk_key, c.key, c.effective_date, p.cause
), parked AS (
    -- One message per death.
    INSERT INTO outhaul.outbox (message_id, body)
    SELECT d.message_id,
           json_build_object(
               'messageId', d.message_id, 'jobId', d.job, 'chunkKey', d.chunk_key, 'key', d.key,
               'effectiveDate', to_char(d.effective_date, 'YYYYMMDD'), 'attempts', d.attempt, 'cause', d.cause)::text
    FROM (
        SELECT j.job_id || '/' || m.chunk_key || '/' || m.fence AS message_id, j.job_id AS job, m.*
        FROM moved m
        JOIN outhaul.job j ON j.id = m.job_id
        WHERE $2
    ) AS d
    ORDER BY d.id
    ON CONFLICT (message_id) DO NOTHING
), gained AS MATERIALIZED (
    SELECT job_id, count(*)::integer AS failed FROM moved GROUP BY job_id
), jobs AS MATERIALIZED (
    SELECT j.id FROM outhaul.job j WHERE j.id = ANY (ARRAY(SELECT job_id FROM gained)) ORDER BY j.id FOR NO KEY UPDATE
), counted AS (
    UPDATE outhaul.job j
    SET failed = j.failed + g.failed, version = j.version + 1, updated_at = clock_timestamp(),
        completed_at = CASE
            WHEN j.done + j.failed + g.failed + j.cancelled = j.total THEN clock_timestamp()
            ELSE j.completed_at END
    FROM gained g
    WHERE j.id = g.job_id AND j.id = ANY (ARRAY(SELECT id FROM jobs))
)
SELECT count(*) FROM moved
