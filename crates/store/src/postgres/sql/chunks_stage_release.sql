-- Waits whose parent has ended: COMPLETED lets the child go on; a bad end does what the child's policy
-- says, and `hold` waits for another end. The wait is locked, so that of many processes one settles it;
-- the parent too, so that no redrive makes its end untrue meanwhile. Nothing here waits for a lock but the
-- children's rows, ascending, which are dependents' rows: last in the order of locks.
WITH ended AS MATERIALIZED (
    SELECT w.child_id, w.parent_id, p.job_id AS parent,
           CASE WHEN p.status = 'COMPLETED' THEN 'run' ELSE c.on_parent_failure END AS what, p.status
    FROM job_parent w
    JOIN job p ON p.id = w.parent_id
    JOIN job c ON c.id = w.child_id
    WHERE NOT w.settled AND p.completed_at IS NOT NULL
      AND (p.status = 'COMPLETED' OR c.on_parent_failure <> 'hold')
    ORDER BY w.child_id, w.parent_id
    LIMIT $1
    FOR UPDATE OF w SKIP LOCKED
    FOR SHARE OF p SKIP LOCKED
), settled AS (
    UPDATE job_parent w
    SET settled = true
    FROM ended e
    WHERE w.child_id = e.child_id AND w.parent_id = e.parent_id AND NOT w.settled
    RETURNING w.child_id, w.parent_id
), gained AS MATERIALIZED (
    SELECT e.child_id, count(*)::integer AS waits, bool_or(e.what = 'cancel') AS cancel, bool_or(e.what = 'fail') AS fail,
           min('The job it depends on, ' || e.parent || ', is ' || e.status) FILTER (WHERE e.what IN ('cancel', 'fail'))
               AS reason
    FROM ended e
    JOIN settled s ON s.child_id = e.child_id AND s.parent_id = e.parent_id
    GROUP BY e.child_id
), children AS MATERIALIZED (
    SELECT j.id FROM job j WHERE j.id = ANY (ARRAY(SELECT child_id FROM gained)) ORDER BY j.id FOR UPDATE
), dead AS (
    UPDATE job_chunk c
    SET state = 'DEAD', error_message = g.reason, completed_at = clock_timestamp(),
        first_failed_at = COALESCE(c.first_failed_at, clock_timestamp())
    FROM gained g
    JOIN job j ON j.id = g.child_id
    WHERE c.job_id = g.child_id AND g.fail AND NOT g.cancel AND c.state = 'CREATED' AND NOT c.held
      AND j.status IN ('SUBMITTED', 'IN_PROGRESS')
    RETURNING c.id, c.job_id, c.attempt
), told_dead AS (
    INSERT INTO chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state, cause)
    SELECT d.id, clock_timestamp(), NULL, d.attempt, 'CREATED', 'DEAD', g.reason
    FROM dead d
    JOIN gained g ON g.child_id = d.job_id
), freed AS (
    UPDATE job j
    SET waits_for = GREATEST(j.waits_for - g.waits, 0), version = j.version + 1, updated_at = clock_timestamp(),
        failed = j.failed + COALESCE(d.failed, 0),
        error_message = COALESCE(j.error_message, g.reason),
        status = CASE
            WHEN j.status NOT IN ('SUBMITTED', 'IN_PROGRESS') THEN j.status
            WHEN g.cancel THEN 'CANCELLED'
            WHEN g.fail THEN 'FAILED'
            ELSE j.status END,
        completed_at = CASE
            WHEN j.done + j.failed + COALESCE(d.failed, 0) + j.cancelled = j.total THEN clock_timestamp()
            ELSE j.completed_at END
    FROM gained g
    LEFT JOIN (SELECT job_id, count(*)::integer AS failed FROM dead GROUP BY job_id) d ON d.job_id = g.child_id
    WHERE j.id = g.child_id AND j.id = ANY (ARRAY(SELECT id FROM children))
    RETURNING j.id, j.waits_for, j.status
), queued AS (
    UPDATE job_chunk c
    SET state = 'QUEUED', run_at = NULL, turn = COALESCE(c.turn, now() + c.position * $2::interval)
    WHERE c.job_id = ANY (ARRAY(
              SELECT f.id FROM freed f WHERE f.waits_for = 0 AND f.status IN ('SUBMITTED', 'IN_PROGRESS')))
      AND c.state = 'CREATED' AND NOT c.held AND (c.run_at IS NULL OR c.run_at <= now())
    RETURNING c.id, c.attempt
), told_queued AS (
    INSERT INTO chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state)
    SELECT q.id, clock_timestamp(), NULL, q.attempt, 'CREATED', 'QUEUED' FROM queued q
)
SELECT (SELECT count(*) FROM settled) AS released, (SELECT count(*) FROM queued) AS queued
