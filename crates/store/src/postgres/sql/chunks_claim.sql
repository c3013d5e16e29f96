-- One statement for as many chunks as the worker has free slots. The job guard is a scalar subquery
-- and the ids pass as an array, so that no statistics can turn either into a scan of the table.
WITH clock AS MATERIALIZED (
    -- Chunks that are claimed together start together.
    SELECT clock_timestamp() AS at
), want AS MATERIALIZED (
    SELECT w.queue_id, LEAST(w.n, $4) AS n
    FROM unnest($2::integer[], $3::integer[]) AS w (queue_id, n)
    WHERE NOT (SELECT q.paused FROM outhaul.queue q WHERE q.id = w.queue_id)
), picked AS MATERIALIZED (
    SELECT p.id, p.priority, p.turn
    FROM want w
    CROSS JOIN LATERAL (
        SELECT c.id, c.priority, c.turn
        FROM outhaul.job_chunk c
        WHERE c.queue_id = w.queue_id AND c.state = 'QUEUED'
          AND (SELECT j.status FROM outhaul.job j WHERE j.id = c.job_id) IN ('SUBMITTED', 'IN_PROGRESS')
        ORDER BY c.priority DESC, c.turn, c.id
        LIMIT w.n
        FOR UPDATE SKIP LOCKED
    ) p
), chosen AS MATERIALIZED (
    SELECT id FROM picked ORDER BY priority DESC, turn, id LIMIT $4
), claimed AS (
    UPDATE outhaul.job_chunk c
    SET state = 'RUNNING', attempt = c.attempt + 1, fence = c.fence + 1, worker_id = $1,
        lease_until = (SELECT at FROM clock) + $5::interval,
        started_at = COALESCE(c.started_at, (SELECT at FROM clock))
    -- The text added to the state keeps the indexes over states out of it, which may be long.
    WHERE c.id = ANY (ARRAY(SELECT id FROM chosen)) AND c.state || '' = 'QUEUED'
    RETURNING c.id, c.job_id, c.fence, c.queue_id, c.chunk_key, c.key, c.effective_date, c.attempt, c.lost,
              c.priority, c.turn, (SELECT at FROM clock) AS claimed_at
), told AS (
    -- The first claim is told by the chunk's own row.
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT c.id, c.claimed_at, $1, c.attempt, 'QUEUED', 'RUNNING'
    FROM claimed c
    WHERE c.fence > 1
)
SELECT c.id, c.fence, c.queue_id, c.chunk_key, c.key, c.effective_date, c.attempt, c.lost, c.claimed_at,
       j.job_id, j.job_type, j.dataset, j.owner, j.params, j.created_at AS submitted_at
FROM claimed c
CROSS JOIN LATERAL (
    SELECT j.job_id, j.job_type, j.dataset, j.owner, j.params, j.created_at
    FROM outhaul.job j
    WHERE j.id = c.job_id
    OFFSET 0
) j
ORDER BY c.priority DESC, c.turn, c.id
