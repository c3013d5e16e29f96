WITH recount AS MATERIALIZED (
    SELECT c.job_id, count(*) FILTER (WHERE c.state = 'SUCCESS') AS done,
           count(*) FILTER (WHERE c.state = 'DEAD') AS failed,
           count(*) FILTER (WHERE c.state = 'CANCELLED') AS cancelled,
           count(*) FILTER (WHERE c.state = 'SUCCESS' AND f.reused) AS reused,
           COALESCE(sum(f.rows) FILTER (WHERE c.state = 'SUCCESS'), 0) AS rows,
           COALESCE(sum(f.bytes) FILTER (WHERE c.state = 'SUCCESS'), 0) AS bytes
    FROM outhaul.job_chunk c
    LEFT JOIN outhaul.chunk_file f ON f.chunk_id = c.id
    WHERE c.job_id = ANY ($1)
    GROUP BY c.job_id
), looked AS (
    UPDATE outhaul.job j
    SET done = r.done, failed = r.failed, cancelled = r.cancelled, reused = r.reused, rows = r.rows, bytes = r.bytes,
        version = j.version + 1, updated_at = now(),
        status = CASE
            WHEN j.status NOT IN ('SUBMITTED', 'IN_PROGRESS') THEN j.status
            WHEN r.done = j.total THEN 'COMPLETED'
            WHEN r.done + r.failed + r.cancelled = j.total THEN 'FAILED'
            ELSE j.status END,
        completed_at = CASE WHEN r.done + r.failed + r.cancelled = j.total THEN now() END
    FROM recount r
    WHERE j.id = r.job_id
      AND ((j.done, j.failed, j.cancelled, j.reused, j.rows, j.bytes)
               IS DISTINCT FROM (r.done, r.failed, r.cancelled, r.reused, r.rows, r.bytes)
           OR r.done + r.failed + r.cancelled = j.total)
    RETURNING j.id, j.status, j.job_type, j.dataset, j.completed_at
), asked_for AS (
    INSERT INTO outhaul.trigger_due (job_id, term, completed_at)
    SELECT l.id, t.term, l.completed_at
    FROM looked l
    CROSS JOIN LATERAL (
        SELECT CASE WHEN l.job_type = 'EXPORT' THEN 'dataset:' || l.dataset ELSE 'job:' || l.job_type END
    ) AS t (term)
    WHERE l.status = 'COMPLETED' AND EXISTS (SELECT FROM outhaul.trigger_rule r WHERE r.after_terms @> ARRAY[t.term])
    ON CONFLICT DO NOTHING
), quiet AS (
    -- Looked at and found right: not again for a while.
    UPDATE outhaul.job j SET checked_at = now() WHERE j.id = ANY ($1) AND j.id <> ALL (ARRAY(SELECT id FROM looked))
)
SELECT count(*) FROM looked
