WITH given AS MATERIALIZED (
    SELECT DISTINCT i.id, i.fence FROM unnest($1::bigint[], $2::bigint[]) AS i (id, fence) ORDER BY i.id, i.fence
), locked AS MATERIALIZED (
    SELECT g.id, g.fence, c.job_id, c.attempt, c.worker_id, c.started_at
    FROM given g
    CROSS JOIN LATERAL (
        SELECT c.job_id, c.attempt, c.worker_id, c.started_at
        FROM outhaul.job_chunk c
        WHERE c.id = g.id AND c.fence = g.fence AND c.state || '' = 'RUNNING' AND c.returned < $3
        FOR UPDATE
    ) c
), told AS (
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT l.id, clock_timestamp(), l.worker_id, l.attempt, 'RUNNING', 'QUEUED' FROM locked l
), moved AS (
    UPDATE outhaul.job_chunk c
    SET state = 'QUEUED', attempt = c.attempt - 1, returned = c.returned + 1, lease_until = NULL, worker_id = NULL
    WHERE c.id = ANY (ARRAY(SELECT l.id FROM locked l))
), gained AS MATERIALIZED (
    SELECT l.job_id, min(l.started_at) AS started_at FROM locked l GROUP BY l.job_id ORDER BY l.job_id
), begun AS (
    -- Fewer run than were shown: the version rises, whatever the status. What is inserted always meets the job's row, as
    -- in the finish.
    INSERT INTO outhaul.job AS j (
        id, job_id, job_type, owner, request, params, labels, on_failure, total, priority, started_at)
    OVERRIDING SYSTEM VALUE
    SELECT g.job_id, '', '', '', '{}', '', '{}', 'stop', 0, 0, g.started_at
    FROM gained g
    ON CONFLICT (id) DO UPDATE
    SET status = CASE WHEN j.status = 'SUBMITTED' THEN 'IN_PROGRESS' ELSE j.status END,
        version = j.version + 1, updated_at = clock_timestamp(),
        started_at = COALESCE(j.started_at, excluded.started_at)
)
SELECT l.id, l.fence FROM locked l
