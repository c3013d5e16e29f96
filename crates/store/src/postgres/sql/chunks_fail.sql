-- Failures of many chunks. A chunk of a CANCELLED job is recorded as CANCELLED. The job's row is always
-- written: fewer run than were shown, so its version rises.
WITH input AS MATERIALIZED (
    SELECT DISTINCT ON (i.id, i.fence) i.id, i.fence, i.expired, i.retry_in, i.cause, i.step, i.detail
    FROM unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::interval[], $5::text[], $6::text[], $8::text[])
         AS i (id, fence, expired, retry_in, cause, step, detail)
), locked AS MATERIALIZED (
    SELECT i.id, i.fence, i.expired, i.cause, COALESCE(i.detail, i.cause) AS detail, i.detail AS given_detail, i.step,
           i.retry_in, clock_timestamp() AS at,
           c.job_id, c.position, c.queue_id, c.chunk_key, c.key, c.effective_date, c.priority, c.attempt, c.worker_id,
           c.started_at,
           CASE
               WHEN (SELECT j.status FROM outhaul.job j WHERE j.id = c.job_id) = 'CANCELLED' THEN 'CANCELLED'
               WHEN i.retry_in IS NULL THEN 'DEAD'
               ELSE 'RETRY' END AS state
    FROM input i
    CROSS JOIN LATERAL (
        SELECT c.job_id, c.position, c.queue_id, c.chunk_key, c.key, c.effective_date, c.priority, c.attempt,
               c.worker_id, c.started_at
        FROM outhaul.job_chunk c
        WHERE c.id = i.id AND c.fence = i.fence AND c.state || '' = 'RUNNING'
          AND (NOT i.expired OR c.lease_until < clock_timestamp())
        FOR UPDATE
    ) c
), moved AS MATERIALIZED (
    SELECT l.*,
           CASE
               WHEN l.step IS NOT NULL THEN 'step=' || l.step
               WHEN l.key IS NULL THEN 'chunk=' || l.chunk_key
               ELSE 'key=' || l.key || ' date=' || to_char(l.effective_date, 'YYYY-MM-DD') END AS name
    FROM locked l
), written AS (
    -- The rows are locked, so each of them is there: what is inserted here always meets the row and updates it.
    INSERT INTO outhaul.job_chunk AS c (
        id, job_id, position, queue_id, chunk_key, priority, state, lost, error_message, error_detail, step,
        first_failed_at, run_at, completed_at)
    OVERRIDING SYSTEM VALUE
    SELECT m.id, m.job_id, m.position, m.queue_id, m.chunk_key, m.priority, m.state, m.expired::integer, m.cause,
           m.given_detail, m.step, m.at, CASE WHEN m.state = 'RETRY' THEN m.at + m.retry_in END,
           CASE WHEN m.state <> 'RETRY' THEN m.at END
    FROM moved m
    ON CONFLICT (id) DO UPDATE
    SET state = excluded.state,
        returned = CASE WHEN excluded.state = 'CANCELLED' THEN c.returned ELSE 0 END,
        lost = CASE
            WHEN excluded.state = 'CANCELLED' THEN c.lost
            WHEN excluded.lost > 0 THEN c.lost + 1
            ELSE 0 END,
        lease_until = NULL, worker_id = NULL, error_message = excluded.error_message,
        error_detail = excluded.error_detail, step = excluded.step,
        first_failed_at = COALESCE(c.first_failed_at, excluded.first_failed_at),
        run_at = excluded.run_at, completed_at = excluded.completed_at
), told AS (
    -- A final failure is two transitions in one. History and parking messages are for operators.
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state, step, cause)
    SELECT m.id, m.at, m.worker_id, m.attempt, t.from_state, t.to_state, m.step, m.detail
    FROM moved m
    CROSS JOIN LATERAL (
        VALUES (1, 'RUNNING', CASE WHEN m.state = 'DEAD' THEN 'RETRY' ELSE m.state END), (2, 'RETRY', 'DEAD')
    ) AS t (place, from_state, to_state)
    WHERE t.place = 1 OR m.state = 'DEAD'
    ORDER BY m.id, t.place
), parked AS (
    -- One message per death: each has a fence of its own.
    INSERT INTO outhaul.outbox (message_id, body)
    SELECT d.message_id,
           json_build_object(
               'messageId', d.message_id, 'jobId', d.job, 'chunkKey', d.chunk_key, 'key', d.key,
               'effectiveDate', to_char(d.effective_date, 'YYYYMMDD'), 'attempts', d.attempt, 'cause', d.detail)::text
    FROM (
        SELECT j.job_id || '/' || m.chunk_key || '/' || m.fence AS message_id, j.job_id AS job,
               m.id, m.chunk_key, m.key, m.effective_date, m.attempt, m.detail
        FROM moved m
        CROSS JOIN LATERAL (SELECT j.job_id FROM outhaul.job j WHERE j.id = m.job_id OFFSET 0) j
        WHERE $7 AND m.state = 'DEAD'
    ) AS d
    ORDER BY d.id
    ON CONFLICT (message_id) DO NOTHING
), settled AS (
    DELETE FROM outhaul.chunk_progress p WHERE p.chunk_id = ANY (ARRAY(SELECT id FROM moved WHERE state <> 'RETRY'))
), changed AS MATERIALIZED (
    SELECT m.job_id, (count(*) FILTER (WHERE m.state = 'DEAD'))::integer AS failed,
           (count(*) FILTER (WHERE m.state = 'CANCELLED'))::integer AS cancelled, min(m.started_at) AS started_at,
           min('Chunk failed after retries: ' || m.name || ': ' || m.cause) FILTER (WHERE m.state = 'DEAD') AS error
    FROM moved m
    GROUP BY m.job_id
    ORDER BY m.job_id
), counted AS (
    -- What is inserted always meets the job's row, as in the finish.
    INSERT INTO outhaul.job AS j (
        id, job_id, job_type, owner, request, params, labels, on_failure, total, priority,
        failed, cancelled, started_at, error_message)
    OVERRIDING SYSTEM VALUE
    SELECT g.job_id, '', '', '', '{}', '', '{}', 'stop', 0, 0, g.failed, g.cancelled, g.started_at, g.error
    FROM changed g
    ON CONFLICT (id) DO UPDATE
    SET failed = j.failed + excluded.failed, cancelled = j.cancelled + excluded.cancelled, version = j.version + 1,
        updated_at = clock_timestamp(), started_at = LEAST(j.started_at, excluded.started_at),
        error_message = COALESCE(j.error_message, excluded.error_message),
        status = CASE
            WHEN j.status NOT IN ('SUBMITTED', 'IN_PROGRESS') THEN j.status
            WHEN excluded.failed > 0 AND j.on_failure = 'stop' THEN 'FAILED'
            WHEN j.done + j.failed + excluded.failed + j.cancelled + excluded.cancelled = j.total THEN 'FAILED'
            ELSE 'IN_PROGRESS' END,
        completed_at = CASE
            WHEN j.done + j.failed + excluded.failed + j.cancelled + excluded.cancelled = j.total
            THEN clock_timestamp() ELSE j.completed_at END
)
SELECT m.id, m.fence, m.state FROM moved m
