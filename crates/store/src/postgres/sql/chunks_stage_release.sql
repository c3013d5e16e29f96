-- Waits whose parent has ended: COMPLETED lets the child go on; a bad end does what the child's policy
-- says, and `hold` waits for another end. A child that has ended itself waits for nobody. The wait and the
-- child are locked, so that of many processes one settles it, and the parent, so that no redrive makes its
-- end untrue meanwhile; what is locked is left for later. Only waits and jobs are written here: the
-- children's chunks, of which there may be many, follow in batches.
WITH ended AS MATERIALIZED (
    SELECT w.child_id, w.parent_id, p.job_id AS parent, p.status,
           CASE
               WHEN c.status NOT IN ('SUBMITTED', 'IN_PROGRESS') THEN 'nothing'
               WHEN p.status = 'COMPLETED' THEN 'run'
               ELSE c.on_parent_failure END AS what
    FROM outhaul.job_parent w
    JOIN outhaul.job p ON p.id = w.parent_id
    JOIN outhaul.job c ON c.id = w.child_id
    WHERE NOT w.settled
      AND ((p.completed_at IS NOT NULL AND (p.status = 'COMPLETED' OR c.on_parent_failure <> 'hold'))
           OR c.status IN ('COMPLETED', 'FAILED', 'CANCELLED'))
    ORDER BY w.child_id, w.parent_id
    LIMIT $1
    FOR UPDATE OF w SKIP LOCKED
    FOR NO KEY UPDATE OF c SKIP LOCKED
    FOR SHARE OF p SKIP LOCKED
), gained AS MATERIALIZED (
    SELECT e.child_id, count(*)::integer AS waits, array_agg(e.parent_id) AS parents,
           bool_or(e.what = 'cancel') AS cancel, bool_or(e.what = 'fail') AS fail,
           bool_and(e.what = 'nothing') AS over,
           min('The job it depends on, ' || e.parent || ', is ' || e.status) FILTER (WHERE e.what IN ('cancel', 'fail'))
               AS reason
    FROM ended e
    GROUP BY e.child_id
), settled AS (
    -- After a bad end there is nothing left to wait for.
    UPDATE outhaul.job_parent w
    SET settled = true
    FROM gained g
    WHERE w.child_id = g.child_id AND NOT w.settled AND (g.cancel OR g.fail OR w.parent_id = ANY (g.parents))
), freed AS (
    UPDATE outhaul.job j
    SET waits_for = CASE WHEN g.cancel OR g.fail THEN 0 ELSE GREATEST(j.waits_for - g.waits, 0) END,
        released = CASE
            WHEN g.cancel THEN NULL
            WHEN g.fail THEN 'fail'
            WHEN j.waits_for <= g.waits THEN 'queue'
            ELSE j.released END,
        status = CASE WHEN g.cancel THEN 'CANCELLED' WHEN g.fail THEN 'FAILED' ELSE j.status END,
        error_message = COALESCE(j.error_message, g.reason),
        version = j.version + 1, updated_at = clock_timestamp()
    FROM gained g
    WHERE j.id = g.child_id AND NOT g.over
)
SELECT count(*) FROM ended
