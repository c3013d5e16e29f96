-- The claim of chunks that messages name, in the order of the names. Each name gets one row: its claim, or
-- why there is none. A row that another transaction has locked is not waited for. What has no slot may wait with
-- the worker: its announcement is deferred here, so that it comes again should that worker die.
WITH clock AS MATERIALIZED (
    -- Chunks that are claimed together start together.
    SELECT clock_timestamp() AS at
), want AS MATERIALIZED (
    SELECT w.queue_id, LEAST(w.n, $6) AS n FROM unnest($4::integer[], $5::integer[]) AS w (queue_id, n)
), named AS MATERIALIZED (
    SELECT n.place, n.chunk_key, (SELECT j.id FROM outhaul.job j WHERE j.job_id = n.job_id) AS job_id
    FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS n (job_id, chunk_key, place)
), found AS MATERIALIZED (
    SELECT n.place, n.job_id,
           (SELECT c.id FROM outhaul.job_chunk c WHERE c.job_id = n.job_id AND c.chunk_key = n.chunk_key) AS id
    FROM named n
), seen AS MATERIALIZED (
    -- One row per name; without a chunk, where there is none of that name.
    SELECT f.place, c.id, c.queue_id, (SELECT w.n FROM want w WHERE w.queue_id = c.queue_id) AS n,
           c.state = 'QUEUED'
               AND (SELECT j.status FROM outhaul.job j WHERE j.id = c.job_id) IN ('SUBMITTED', 'IN_PROGRESS') AS waits,
           row_number() OVER (PARTITION BY c.id ORDER BY f.place) = 1 AS first,
           (SELECT q.paused FROM outhaul.queue q WHERE q.id = c.queue_id) AS paused
    FROM found f
    LEFT JOIN LATERAL (
        SELECT c.id, c.queue_id, c.job_id, c.state FROM outhaul.job_chunk c WHERE c.id = f.id OFFSET 0
    ) c ON true
), locked AS MATERIALIZED (
    SELECT c.id
    FROM outhaul.job_chunk c
    WHERE c.id = ANY (ARRAY(SELECT s.id FROM seen s WHERE s.waits AND NOT s.paused AND s.n > 0))
      AND c.state || '' = 'QUEUED'
      AND (SELECT j.status FROM outhaul.job j WHERE j.id = c.job_id) IN ('SUBMITTED', 'IN_PROGRESS')
    ORDER BY c.id
    FOR UPDATE SKIP LOCKED
), ranked AS MATERIALIZED (
    SELECT s.id, s.place, s.n, row_number() OVER (PARTITION BY s.queue_id ORDER BY s.place) AS rank
    FROM seen s
    -- Not a join: the planner cannot turn this list around.
    WHERE s.waits AND s.first AND (s.id IN (SELECT l.id FROM locked l)) IS TRUE
), chosen AS MATERIALIZED (
    SELECT r.id, r.place FROM ranked r WHERE r.rank <= r.n ORDER BY r.place LIMIT $6
), claimed AS (
    UPDATE outhaul.job_chunk c
    SET state = 'RUNNING', attempt = c.attempt + 1, fence = c.fence + 1, worker_id = $1,
        lease_until = (SELECT at FROM clock) + $7::interval,
        started_at = COALESCE(c.started_at, (SELECT at FROM clock))
    WHERE c.id = ANY (ARRAY(SELECT id FROM chosen)) AND c.state || '' = 'QUEUED'
    RETURNING c.id, c.job_id, c.fence, c.queue_id, c.chunk_key, c.key, c.effective_date, c.attempt, c.lost,
              (SELECT at FROM clock) AS claimed_at
), told AS (
    -- The first claim is told by the chunk's own row.
    INSERT INTO outhaul.chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT c.id, c.claimed_at, $1, c.attempt, 'QUEUED', 'RUNNING'
    FROM claimed c
    WHERE c.fence > 1
), vain AS MATERIALIZED (
    SELECT a.chunk_id
    FROM outhaul.announcement a
    WHERE a.chunk_id = ANY (ARRAY(SELECT s.id FROM seen s WHERE NOT s.waits))
    ORDER BY a.chunk_id
    FOR UPDATE SKIP LOCKED
), forgotten AS (
    -- Its message is gone with this: should it come to wait again (held, then redriven), it is announced anew.
    DELETE FROM outhaul.announcement a WHERE a.chunk_id = ANY (ARRAY(SELECT chunk_id FROM vain))
), slotless AS MATERIALIZED (
    SELECT a.chunk_id, a.standing
    FROM outhaul.announcement a
    WHERE a.chunk_id = ANY (ARRAY(
        SELECT s.id
        FROM seen s
        WHERE s.waits AND s.first AND NOT s.paused
          AND (s.n = 0 OR s.id IN (SELECT l.id FROM locked l))
          AND s.id NOT IN (SELECT o.id FROM chosen o)))
), to_defer AS MATERIALIZED (
    SELECT a.chunk_id
    FROM outhaul.announcement a
    WHERE a.chunk_id = ANY (ARRAY(SELECT s.chunk_id FROM slotless s WHERE s.standing <> 'deferred'))
    ORDER BY a.chunk_id
    FOR UPDATE SKIP LOCKED
), deferred AS (
    UPDATE outhaul.announcement a
    SET standing = 'deferred', until = LEAST(a.until, clock_timestamp() + $8::interval),
        waits = LEAST(a.waits + 1, 5)
    WHERE a.chunk_id = ANY (ARRAY(SELECT chunk_id FROM to_defer))
)
-- What was claimed, and after it the names in their order. Rust joins the two: here the planner could join them row by row.
SELECT s.place, s.id AS seen_id, s.queue_id AS seen_queue,
       CASE
           WHEN s.first AND (s.id IN (SELECT o.id FROM chosen o)) IS TRUE THEN 'claimed'
           WHEN s.id IS NULL THEN 'unknown'
           WHEN NOT (s.waits AND s.first) THEN 'over'
           WHEN s.paused THEN 'paused'
           WHEN s.n IS NULL THEN 'unknown_queue'
           WHEN s.n > 0 AND s.id NOT IN (SELECT l.id FROM locked l) THEN 'busy'
           WHEN (s.id IN (SELECT l.chunk_id FROM slotless l WHERE l.standing <> 'deferred')) IS TRUE
               AND s.id NOT IN (SELECT t.chunk_id FROM to_defer t) THEN 'busy'
           ELSE 'no_slot' END AS verdict,
       NULL::bigint AS id, NULL::bigint AS fence, NULL::integer AS queue_id, NULL::text AS chunk_key, NULL::text AS key,
       NULL::date AS effective_date, NULL::integer AS attempt, NULL::smallint AS lost, NULL::timestamptz AS claimed_at,
       NULL::text AS job_id, NULL::text AS job_type, NULL::text AS dataset, NULL::text AS owner, NULL::text AS params,
       NULL::timestamptz AS submitted_at
FROM seen s
UNION ALL
SELECT NULL, c.id, NULL, NULL, c.id, c.fence, c.queue_id, c.chunk_key, c.key, c.effective_date, c.attempt, c.lost,
       c.claimed_at, j.job_id, j.job_type, j.dataset, j.owner, j.params, j.created_at
FROM claimed c
CROSS JOIN LATERAL (
    SELECT j.job_id, j.job_type, j.dataset, j.owner, j.params, j.created_at
    FROM outhaul.job j
    WHERE j.id = c.job_id
    OFFSET 0
) j
ORDER BY place NULLS FIRST
