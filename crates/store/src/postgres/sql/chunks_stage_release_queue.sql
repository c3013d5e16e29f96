WITH released AS MATERIALIZED (
    SELECT j.id
    FROM outhaul.job j
    WHERE j.released = 'queue' AND j.status IN ('SUBMITTED', 'IN_PROGRESS')
    ORDER BY j.id
    LIMIT $1
), picked AS MATERIALIZED (
    SELECT c.id, c.attempt
    FROM outhaul.job_chunk c
    WHERE c.job_id = ANY (ARRAY(SELECT id FROM released))
      AND c.state IN ('CREATED', 'QUEUED', 'RETRY') AND c.state = 'CREATED' AND NOT c.held
      AND (c.run_at IS NULL OR c.run_at <= now())
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), told AS (
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT p.id, clock_timestamp(), NULL, p.attempt, 'CREATED', 'QUEUED' FROM picked p
)
UPDATE outhaul.job_chunk c
SET state = 'QUEUED', run_at = NULL, turn = COALESCE(c.turn, now() + c.position * $2::interval)
WHERE c.id = ANY (ARRAY(SELECT id FROM picked))
