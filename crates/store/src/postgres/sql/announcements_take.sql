-- Marks chunks as announced, as many as the window has room for, in claim order. What is announced of a
-- chunk counts while the chunk is QUEUED, under that fence, until its time has passed. Ids pass as arrays,
-- which are looked up by hash whatever the statistics say.
WITH told AS MATERIALIZED (
    -- Whether the chunk is still QUEUED as it was announced; null: it is not QUEUED.
    SELECT a.queue_id, a.chunk_id, a.until > (SELECT clock_timestamp()) AS ahead,
           (SELECT c.fence = a.fence FROM outhaul.job_chunk c WHERE c.id = a.chunk_id AND c.state || '' = 'QUEUED') AS same
    FROM outhaul.announcement a
    WHERE a.queue_id = ANY ($1::integer[])
), announced AS MATERIALIZED (
    SELECT t.queue_id, count(*) AS n FROM told t WHERE t.same AND t.ahead GROUP BY t.queue_id
), picked AS MATERIALIZED (
    SELECT p.*
    FROM unnest($1::integer[]) AS q (id)
    CROSS JOIN LATERAL (
        SELECT c.id, c.queue_id, c.fence, c.job_id, c.chunk_key, c.key, c.effective_date, c.priority, c.turn
        FROM outhaul.job_chunk c
        WHERE c.queue_id = q.id AND c.state = 'QUEUED'
          AND c.id NOT IN (SELECT unnest(ARRAY(SELECT t.chunk_id FROM told t WHERE t.same AND t.ahead)))
          AND (SELECT j.status FROM outhaul.job j WHERE j.id = c.job_id) IN ('SUBMITTED', 'IN_PROGRESS')
        ORDER BY c.priority DESC, c.turn, c.id
        LIMIT GREATEST(0, LEAST($3, $2 - COALESCE((SELECT n.n FROM announced n WHERE n.queue_id = q.id), 0)))
    ) p
), chosen AS MATERIALIZED (
    SELECT p.*, (SELECT clock_timestamp()) + $4::interval AS mark
    FROM picked p
    ORDER BY p.priority DESC, p.turn, p.id
    LIMIT $3
), marked AS (
    INSERT INTO outhaul.announcement AS a (queue_id, chunk_id, fence, until)
    SELECT o.queue_id, o.id, o.fence, o.mark FROM chosen o ORDER BY o.id
    ON CONFLICT (chunk_id) DO UPDATE
    SET fence = excluded.fence, until = excluded.until, queue_id = excluded.queue_id,
        standing = 'held',
        times = CASE
            WHEN a.fence <> excluded.fence THEN 0
            WHEN a.standing = 'deferred' THEN a.times
            ELSE LEAST(a.times + 1, 5) END,
        waits = CASE WHEN a.fence = excluded.fence THEN a.waits ELSE 0 END
    RETURNING a.chunk_id
), gone AS MATERIALIZED (
    -- After the marks: those wait, lowest id first, for whoever holds their rows, and must hold none of these then.
    SELECT a.chunk_id
    FROM outhaul.announcement a
    WHERE a.chunk_id = ANY (ARRAY(SELECT t.chunk_id FROM told t WHERE t.same IS NULL))
      AND (SELECT count(*) FROM marked) >= 0
    ORDER BY a.chunk_id
    FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM outhaul.announcement a WHERE a.chunk_id = ANY (ARRAY(SELECT g.chunk_id FROM gone g))
)
SELECT o.id, o.fence, o.queue_id, o.chunk_key, o.key, o.effective_date, o.mark,
       (SELECT j.job_id FROM outhaul.job j WHERE j.id = o.job_id) AS job_id
FROM chosen o
ORDER BY o.priority DESC, o.turn, o.id
