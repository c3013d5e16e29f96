WITH locked AS MATERIALIZED (
    SELECT c.id, c.attempt, c.worker_id
    FROM job_chunk c
    JOIN unnest($1::bigint[], $2::bigint[]) AS a (id, fence) ON a.id = c.id AND a.fence = c.fence
    WHERE c.state = 'RUNNING' AND c.returned < $3
    ORDER BY c.id
    FOR UPDATE OF c
), told AS (
    INSERT INTO chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT l.id, clock_timestamp(), l.worker_id, l.attempt, 'RUNNING', 'QUEUED' FROM locked l
), moved AS (
    UPDATE job_chunk c
    SET state = 'QUEUED', attempt = c.attempt - 1, returned = c.returned + 1, lease_until = NULL, worker_id = NULL
    WHERE c.id = ANY (ARRAY(SELECT id FROM locked))
    RETURNING c.id, c.fence, c.job_id, c.started_at
), gained AS MATERIALIZED (
    SELECT job_id, min(started_at) AS started_at FROM moved GROUP BY job_id
), jobs AS MATERIALIZED (
    SELECT j.id FROM job j WHERE j.id = ANY (ARRAY(SELECT job_id FROM gained)) ORDER BY j.id FOR NO KEY UPDATE
), begun AS (
    -- Fewer run than were shown: the version rises, whatever the status.
    UPDATE job j
    SET status = CASE WHEN j.status = 'SUBMITTED' THEN 'IN_PROGRESS' ELSE j.status END,
        version = j.version + 1, updated_at = clock_timestamp(), started_at = COALESCE(j.started_at, g.started_at)
    FROM gained g
    WHERE j.id = g.job_id AND j.id = ANY (ARRAY(SELECT id FROM jobs))
)
SELECT id, fence FROM moved
