-- Chunks before the job's row, ascending: the lock order of every finish.
WITH locked AS MATERIALIZED (
    SELECT c.id, c.attempt, c.state
    FROM outhaul.job_chunk c
    WHERE c.job_id = $1
      AND ((c.state = 'DEAD'
            AND ($3::bigint[] IS NULL
                 OR (c.id, c.fence) IN (SELECT d.id, d.fence FROM unnest($3, $4::bigint[]) AS d (id, fence))))
           OR (c.state = 'CREATED' AND c.held))
    ORDER BY c.id
    FOR UPDATE
), told AS (
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT l.id, clock_timestamp(), NULL, l.attempt, l.state, 'QUEUED' FROM locked l
), moved AS (
    UPDATE outhaul.job_chunk c
    SET state = 'QUEUED', attempt = 0, returned = 0, lost = 0, held = false, run_at = NULL,
        turn = COALESCE(c.turn, now() + c.position * $2::interval),
        completed_at = NULL, error_message = NULL, step = NULL, first_failed_at = NULL
    FROM locked l
    WHERE c.id = l.id
    RETURNING c.id, l.state = 'DEAD' AS dead
)
SELECT count(*) AS moved, count(*) FILTER (WHERE dead) AS dead FROM moved
