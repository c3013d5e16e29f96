WITH due AS MATERIALIZED (
    SELECT c.id, c.attempt, c.state
    FROM outhaul.job_chunk c
    WHERE c.state IN ('CREATED', 'RETRY') AND NOT c.held AND c.waits_for = 0 AND c.run_at <= now()
      AND (SELECT j.waits_for = 0 AND j.status IN ('SUBMITTED', 'IN_PROGRESS') FROM outhaul.job j WHERE j.id = c.job_id)
    ORDER BY c.run_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), told AS (
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT d.id, clock_timestamp(), NULL, d.attempt, d.state, 'QUEUED' FROM due d
)
UPDATE outhaul.job_chunk c
SET state = 'QUEUED', run_at = NULL, turn = COALESCE(c.turn, now() + c.position * $2::interval)
WHERE c.id = ANY (ARRAY(SELECT id FROM due))
