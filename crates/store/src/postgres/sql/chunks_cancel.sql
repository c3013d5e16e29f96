WITH locked AS MATERIALIZED (
    SELECT c.id, c.attempt, c.worker_id
    FROM job_chunk c
    JOIN unnest($1::bigint[], $2::bigint[]) AS a (id, fence) ON a.id = c.id AND a.fence = c.fence
    WHERE c.state = 'RUNNING' AND (SELECT j.status FROM job j WHERE j.id = c.job_id) = 'CANCELLED'
    ORDER BY c.id
    FOR UPDATE OF c
), told AS (
    INSERT INTO chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT l.id, clock_timestamp(), l.worker_id, l.attempt, 'RUNNING', 'CANCELLED' FROM locked l
), moved AS (
    UPDATE job_chunk c
    SET state = 'CANCELLED', completed_at = clock_timestamp(), lease_until = NULL, worker_id = NULL
    WHERE c.id = ANY (ARRAY(SELECT id FROM locked))
    RETURNING c.id, c.fence, c.job_id, c.started_at
), settled AS (
    DELETE FROM chunk_progress p WHERE p.chunk_id = ANY (ARRAY(SELECT id FROM moved))
), gained AS MATERIALIZED (
    SELECT job_id, count(*)::integer AS cancelled, min(started_at) AS started_at FROM moved GROUP BY job_id
), jobs AS MATERIALIZED (
    SELECT j.id FROM job j WHERE j.id = ANY (ARRAY(SELECT job_id FROM gained)) ORDER BY j.id FOR NO KEY UPDATE
), counted AS (
    UPDATE job j
    SET cancelled = j.cancelled + g.cancelled, version = j.version + 1, updated_at = clock_timestamp(),
        started_at = LEAST(j.started_at, g.started_at),
        completed_at = CASE
            WHEN j.done + j.failed + j.cancelled + g.cancelled = j.total THEN clock_timestamp()
            ELSE j.completed_at END
    FROM gained g
    WHERE j.id = g.job_id AND j.id = ANY (ARRAY(SELECT id FROM jobs))
)
SELECT id, fence FROM moved
