-- Chunks that must not start, because their job failed and stops at its first failure.
-- The job's row is held so that no redrive commits meanwhile: a chunk held in a job that runs again
-- would never be looked at. Nothing here waits for a lock, so the order of locks does not matter.
WITH failed AS MATERIALIZED (
    SELECT j.id
    FROM outhaul.job j
    WHERE j.status IN ('FAILED', 'CANCELLED') AND j.completed_at IS NULL AND j.status = 'FAILED' AND j.on_failure = 'stop'
      -- Those fail with what they waited for.
      AND j.released IS DISTINCT FROM 'fail'
    ORDER BY j.id
    FOR SHARE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT c.id, c.attempt, c.state
    FROM outhaul.job_chunk c
    WHERE c.job_id = ANY (ARRAY(SELECT id FROM failed))
      AND c.state IN ('CREATED', 'QUEUED', 'RETRY') AND NOT c.held
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), told AS (
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT p.id, clock_timestamp(), NULL, p.attempt, p.state, 'CREATED'
    FROM picked p
    WHERE p.state <> 'CREATED'
)
UPDATE outhaul.job_chunk c
SET state = 'CREATED', held = true
WHERE c.id = ANY (ARRAY(SELECT id FROM picked))
