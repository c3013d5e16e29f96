WITH given AS MATERIALIZED (
    SELECT DISTINCT i.id, i.fence FROM unnest($1::bigint[], $2::bigint[]) AS i (id, fence) ORDER BY i.id, i.fence
), locked AS MATERIALIZED (
    SELECT g.id, g.fence, c.job_id, c.attempt, c.worker_id, c.started_at
    FROM given g
    CROSS JOIN LATERAL (
        SELECT c.job_id, c.attempt, c.worker_id, c.started_at
        FROM outhaul.job_chunk c
        WHERE c.id = g.id AND c.fence = g.fence AND c.state || '' = 'RUNNING'
          AND (SELECT j.status FROM outhaul.job j WHERE j.id = c.job_id) = 'CANCELLED'
        FOR UPDATE
    ) c
), told AS (
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT l.id, clock_timestamp(), l.worker_id, l.attempt, 'RUNNING', 'CANCELLED' FROM locked l
), moved AS (
    UPDATE outhaul.job_chunk c
    SET state = 'CANCELLED', completed_at = clock_timestamp(), lease_until = NULL, worker_id = NULL
    WHERE c.id = ANY (ARRAY(SELECT l.id FROM locked l))
), settled AS (
    DELETE FROM outhaul.chunk_progress p WHERE p.chunk_id = ANY (ARRAY(SELECT l.id FROM locked l))
), gained AS MATERIALIZED (
    SELECT l.job_id, count(*)::integer AS cancelled, min(l.started_at) AS started_at
    FROM locked l
    GROUP BY l.job_id
    ORDER BY l.job_id
), counted AS (
    -- What is inserted always meets the job's row, as in the finish.
    INSERT INTO outhaul.job AS j (
        id, job_id, job_type, owner, request, params, labels, on_failure, total, priority, cancelled, started_at)
    OVERRIDING SYSTEM VALUE
    SELECT g.job_id, '', '', '', '{}', '', '{}', 'stop', 0, 0, g.cancelled, g.started_at
    FROM gained g
    ON CONFLICT (id) DO UPDATE
    SET cancelled = j.cancelled + excluded.cancelled, version = j.version + 1, updated_at = clock_timestamp(),
        started_at = LEAST(j.started_at, excluded.started_at),
        completed_at = CASE
            WHEN j.done + j.failed + j.cancelled + excluded.cancelled = j.total THEN clock_timestamp()
            ELSE j.completed_at END
)
SELECT l.id, l.fence FROM locked l
