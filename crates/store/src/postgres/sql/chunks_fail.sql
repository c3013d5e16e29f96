-- Failures of many chunks. A chunk of a CANCELLED job is recorded as CANCELLED. The job's row is always
-- written: fewer run than were shown, so its version rises.
WITH input AS MATERIALIZED (
    SELECT DISTINCT ON (i.id, i.fence) *
    FROM unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::interval[], $5::text[], $6::text[], $8::text[])
         AS i (id, fence, expired, retry_in, cause, step, detail)
), locked AS MATERIALIZED (
    SELECT c.id, c.fence, c.job_id, c.started_at, c.key, c.effective_date, c.chunk_key, c.worker_id,
           clock_timestamp() AS at,
           CASE
               WHEN (SELECT j.status FROM job j WHERE j.id = c.job_id) = 'CANCELLED' THEN 'CANCELLED'
               WHEN i.retry_in IS NULL THEN 'DEAD'
               ELSE 'RETRY' END AS state
    FROM job_chunk c
    JOIN input i ON i.id = c.id AND i.fence = c.fence
    WHERE c.id = ANY ($1) AND c.state = 'RUNNING' AND (NOT i.expired OR c.lease_until < clock_timestamp())
    ORDER BY c.id
    FOR UPDATE OF c
), moved AS (
    UPDATE job_chunk c
    SET state = l.state,
        returned = CASE WHEN l.state = 'CANCELLED' THEN c.returned ELSE 0 END,
        lost = CASE WHEN l.state = 'CANCELLED' THEN c.lost WHEN i.expired THEN c.lost + 1 ELSE 0 END,
        lease_until = NULL, worker_id = NULL, error_message = i.cause, error_detail = i.detail, step = i.step,
        first_failed_at = COALESCE(c.first_failed_at, l.at),
        run_at = CASE WHEN l.state = 'RETRY' THEN l.at + i.retry_in END,
        completed_at = CASE WHEN l.state <> 'RETRY' THEN l.at END
    FROM locked l
    JOIN input i ON i.id = l.id AND i.fence = l.fence
    WHERE c.id = l.id
    RETURNING c.id, c.fence, c.job_id, c.state, c.attempt, c.chunk_key, c.key, c.effective_date,
              l.worker_id, l.started_at, i.cause, COALESCE(i.detail, i.cause) AS detail, i.step, l.at,
              CASE
                  WHEN i.step IS NOT NULL THEN 'step=' || i.step
                  WHEN l.key IS NULL THEN 'chunk=' || l.chunk_key
                  ELSE 'key=' || l.key || ' date=' || to_char(l.effective_date, 'YYYY-MM-DD') END AS name
), told AS (
    -- A final failure is two transitions in one. History and parking messages are for operators.
    INSERT INTO chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state, step, cause)
    SELECT m.id, m.at, m.worker_id, m.attempt, t.from_state, t.to_state, m.step, m.detail
    FROM moved m
    CROSS JOIN LATERAL (
        VALUES (1, 'RUNNING', CASE WHEN m.state = 'DEAD' THEN 'RETRY' ELSE m.state END), (2, 'RETRY', 'DEAD')
    ) AS t (place, from_state, to_state)
    WHERE t.place = 1 OR m.state = 'DEAD'
    ORDER BY m.id, t.place
), parked AS (
    -- One message per death: each has a fence of its own.
    INSERT INTO outbox (message_id, body)
    SELECT d.message_id,
           json_build_object(
               'messageId', d.message_id, 'jobId', d.job, 'chunkKey', d.chunk_key, 'key', d.key,
               'effectiveDate', to_char(d.effective_date, 'YYYYMMDD'), 'attempts', d.attempt, 'cause', d.detail)::text
    FROM (
        SELECT j.job_id || '/' || m.chunk_key || '/' || m.fence AS message_id, j.job_id AS job, m.*
        FROM moved m
        JOIN job j ON j.id = m.job_id
        WHERE $7 AND m.state = 'DEAD'
    ) AS d
    ORDER BY d.id
    ON CONFLICT (message_id) DO NOTHING
), settled AS (
    DELETE FROM chunk_progress p WHERE p.chunk_id = ANY (ARRAY(SELECT id FROM moved WHERE state <> 'RETRY'))
), changed AS MATERIALIZED (
    SELECT m.job_id, (count(*) FILTER (WHERE m.state = 'DEAD'))::integer AS failed,
           (count(*) FILTER (WHERE m.state = 'CANCELLED'))::integer AS cancelled, min(m.started_at) AS started_at,
           min('Chunk failed after retries: ' || m.name || ': ' || m.cause) FILTER (WHERE m.state = 'DEAD') AS error
    FROM moved m
    GROUP BY m.job_id
), jobs AS MATERIALIZED (
    SELECT j.id
    FROM job j
    JOIN changed g ON g.job_id = j.id
    ORDER BY j.id
    FOR NO KEY UPDATE OF j
), counted AS (
    UPDATE job j
    SET failed = j.failed + g.failed, cancelled = j.cancelled + g.cancelled, version = j.version + 1,
        updated_at = clock_timestamp(), started_at = LEAST(j.started_at, g.started_at),
        error_message = COALESCE(j.error_message, g.error),
        status = CASE
            WHEN j.status NOT IN ('SUBMITTED', 'IN_PROGRESS') THEN j.status
            WHEN g.failed > 0 AND j.on_failure = 'stop' THEN 'FAILED'
            WHEN j.done + j.failed + g.failed + j.cancelled + g.cancelled = j.total THEN 'FAILED'
            ELSE 'IN_PROGRESS' END,
        completed_at = CASE
            WHEN j.done + j.failed + g.failed + j.cancelled + g.cancelled = j.total THEN clock_timestamp()
            ELSE j.completed_at END
    FROM changed g
    WHERE j.id = g.job_id AND j.id = ANY (ARRAY(SELECT id FROM jobs))
)
SELECT id, fence, state FROM moved
