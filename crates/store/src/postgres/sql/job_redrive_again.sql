-- What died or was held between the first look and the lock on the job's row. Here that row is already
-- locked, so it must not wait: what is locked belongs to another redrive, which moves it itself, or
-- to a failure, which will fail the job again.
WITH locked AS MATERIALIZED (
    SELECT c.id, c.state
    FROM job_chunk c
    WHERE c.job_id = $1 AND (c.state = 'DEAD' OR (c.state = 'CREATED' AND c.held))
    ORDER BY c.id
    FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE job_chunk c
    SET state = 'QUEUED', attempt = 0, returned = 0, lost = 0, held = false, run_at = NULL,
        turn = COALESCE(c.turn, now() + c.position * $2::interval),
        completed_at = NULL, error_message = NULL
    FROM locked l
    WHERE c.id = l.id
    RETURNING c.id, l.state = 'DEAD' AS dead
)
SELECT count(*) AS moved, count(*) FILTER (WHERE dead) AS dead FROM moved
