), done AS (
    UPDATE outhaul.job_chunk c
    SET state = 'SUCCESS', completed_at = clock_timestamp(), lease_until = NULL, returned = 0, lost = 0,
        error_message = NULL, step = NULL
    WHERE c.id = ANY (ARRAY(SELECT a.id FROM accepted a))
), settled AS (
    DELETE FROM outhaul.chunk_progress p WHERE p.chunk_id = ANY (ARRAY(SELECT a.id FROM accepted a))
), gained AS MATERIALIZED (
    SELECT a.job_id, count(*)::integer AS done, (count(*) FILTER (WHERE a.reused))::integer AS reused,
           COALESCE(sum(a.rows), 0)::bigint AS rows, COALESCE(sum(a.bytes), 0)::bigint AS bytes,
           min(a.started_at) AS started_at, max(a.result) AS result
    FROM accepted a
    GROUP BY a.job_id
    ORDER BY a.job_id
), counted AS (
    -- A job with a running chunk is there, and the chunk is locked: what is inserted here always meets the job's row,
    -- locks it in ascending order, and updates it. An UPDATE would join two lists, and the planner could turn the join
    -- around.
    INSERT INTO outhaul.job AS j (
        id, job_id, job_type, owner, request, params, labels, on_failure, total, priority,
        done, reused, rows, bytes, started_at, result)
    OVERRIDING SYSTEM VALUE
    SELECT g.job_id, '', '', '', '{}', '', '{}', 'stop', 0, 0, g.done, g.reused, g.rows, g.bytes, g.started_at, g.result
    FROM gained g
    ON CONFLICT (id) DO UPDATE
    SET done = j.done + excluded.done, reused = j.reused + excluded.reused, rows = j.rows + excluded.rows,
        bytes = j.bytes + excluded.bytes, result = COALESCE(excluded.result, j.result), version = j.version + 1,
        updated_at = clock_timestamp(), started_at = LEAST(j.started_at, excluded.started_at),
        status = CASE
            WHEN j.status NOT IN ('SUBMITTED', 'IN_PROGRESS') THEN j.status
            WHEN j.done + excluded.done = j.total THEN 'COMPLETED'
            WHEN j.done + excluded.done + j.failed + j.cancelled = j.total THEN 'FAILED'
            ELSE 'IN_PROGRESS' END,
        -- Also where the other counts are wrong: a COMPLETED job has a time, or nobody would look at it again.
        completed_at = CASE
            WHEN j.total IN (j.done + excluded.done, j.done + excluded.done + j.failed + j.cancelled)
            THEN clock_timestamp() ELSE j.completed_at END
    RETURNING j.id, j.status, j.job_type, j.dataset, j.completed_at
), asked_for AS (
    -- What some trigger waits for is left for the duty that judges it.
    INSERT INTO outhaul.trigger_due (job_id, term, completed_at)
    SELECT c.id, t.term, c.completed_at
    FROM counted c
    CROSS JOIN LATERAL (
        SELECT CASE WHEN c.job_type = 'EXPORT' THEN 'dataset:' || c.dataset ELSE 'job:' || c.job_type END
    ) AS t (term)
    WHERE c.status = 'COMPLETED' AND EXISTS (SELECT FROM outhaul.trigger_rule)
      AND EXISTS (SELECT FROM outhaul.trigger_rule r WHERE r.after_terms @> ARRAY[t.term])
    ON CONFLICT DO NOTHING
)
SELECT a.id, a.fence FROM accepted a
