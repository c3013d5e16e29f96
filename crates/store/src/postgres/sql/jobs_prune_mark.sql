-- Walks the jobs in the order of their ids, a page at a time, so that no index on the time of completion is needed. The
-- walk ends at a page whose last job was submitted too late to be pruned.
-- $1 how long jobs are kept, $2 page, $3 the id before the page
WITH page AS MATERIALIZED (
    SELECT j.id, j.created_at >= now() - $1::interval AS too_young,
           j.completed_at < now() - $1::interval AND j.pruned_at IS NULL AS old
    FROM outhaul.job j
    WHERE j.id > $3
    ORDER BY j.id
    LIMIT $2
), chosen AS MATERIALIZED (
    SELECT p.id
    FROM page p
    CROSS JOIN LATERAL (
        SELECT FROM outhaul.job j
        WHERE j.id = p.id AND j.completed_at < now() - $1::interval AND j.pruned_at IS NULL
          -- Kept for as long as another waits for it.
          AND NOT EXISTS (SELECT FROM outhaul.job_parent w WHERE w.parent_id = j.id AND NOT w.settled)
        FOR UPDATE SKIP LOCKED
    ) j
    WHERE p.old
), marked AS (
    UPDATE outhaul.job
    SET pruned_at = now(), idempotency_key = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM chosen))
)
SELECT (SELECT count(*) FROM chosen) AS marked,
       (SELECT CASE WHEN NOT l.too_young THEN l.id END FROM page l ORDER BY l.id DESC LIMIT 1) AS last
