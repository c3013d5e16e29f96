WITH cancelled AS MATERIALIZED (
    SELECT j.id FROM outhaul.job j WHERE j.status IN ('FAILED', 'CANCELLED') AND j.completed_at IS NULL AND j.status = 'CANCELLED'
), picked AS MATERIALIZED (
    SELECT c.id, c.attempt, c.state
    FROM outhaul.job_chunk c
    WHERE c.job_id = ANY (ARRAY(SELECT id FROM cancelled)) AND c.state IN ('CREATED', 'QUEUED', 'RETRY')
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), told AS (
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT p.id, clock_timestamp(), NULL, p.attempt, p.state, 'CANCELLED' FROM picked p
), moved AS (
    UPDATE outhaul.job_chunk c
    SET state = 'CANCELLED', held = false, completed_at = clock_timestamp()
    WHERE c.id = ANY (ARRAY(SELECT id FROM picked))
    RETURNING c.id, c.job_id
), settled AS (
    DELETE FROM outhaul.chunk_progress p WHERE p.chunk_id = ANY (ARRAY(SELECT id FROM moved))
), gained AS MATERIALIZED (
    SELECT job_id, count(*)::integer AS cancelled FROM moved GROUP BY job_id
), jobs AS MATERIALIZED (
    SELECT j.id FROM outhaul.job j WHERE j.id = ANY (ARRAY(SELECT job_id FROM gained)) ORDER BY j.id FOR NO KEY UPDATE
), counted AS (
    UPDATE outhaul.job j
    SET cancelled = j.cancelled + g.cancelled, version = j.version + 1, updated_at = clock_timestamp()
    FROM gained g
    WHERE j.id = g.job_id AND j.id = ANY (ARRAY(SELECT id FROM jobs))
)
SELECT count(*) FROM moved
