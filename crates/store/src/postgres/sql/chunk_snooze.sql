-- By their keys: the text added to the states keeps the indexes over states out of it, which are dear to
-- walk when many chunks have moved or many jobs wait.
WITH locked AS MATERIALIZED (
    SELECT c.id, c.attempt, c.worker_id
    FROM outhaul.job_chunk c
    WHERE c.id = $1 AND c.fence = $2 AND c.state || '' = 'RUNNING'
    FOR UPDATE
), told AS (
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT l.id, clock_timestamp(), l.worker_id, l.attempt, 'RUNNING', 'CREATED' FROM locked l
), moved AS (
    UPDATE outhaul.job_chunk c
    SET state = 'CREATED', attempt = c.attempt - 1, returned = 0, lease_until = NULL, worker_id = NULL,
        run_at = clock_timestamp() + $3::interval
    WHERE c.id = ANY (ARRAY(SELECT id FROM locked))
    RETURNING c.job_id, c.started_at
), begun AS (
    -- Fewer run than were shown: the version rises, whatever the status.
    UPDATE outhaul.job j
    SET status = CASE WHEN j.status = 'SUBMITTED' THEN 'IN_PROGRESS' ELSE j.status END,
        version = j.version + 1, updated_at = clock_timestamp(), started_at = COALESCE(j.started_at, m.started_at)
    FROM moved m
    WHERE j.id = m.job_id AND j.id = ANY (ARRAY(SELECT job_id FROM moved))
)
SELECT EXISTS (SELECT FROM moved)
