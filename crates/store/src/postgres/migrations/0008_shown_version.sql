-- A number that moves with everything that is shown of a job. Claims and progress leave the job's row alone, so
-- what they change is added to the row's version, which counts in steps of 2^32: every statement that takes a
-- chunk out of RUNNING, or settles it, raises the row's version, and so outweighs all that it takes away.
ALTER TABLE chunk_progress ADD COLUMN reports bigint NOT NULL DEFAULT 1;

CREATE OR REPLACE VIEW job_view AS
SELECT j.id, j.job_id, j.job_type, j.dataset, j.owner, j.status AS stored_status,
       CASE WHEN j.status = 'SUBMITTED' AND r.running > 0 THEN 'IN_PROGRESS' ELSE j.status END AS status,
       j.on_failure, j.priority, j.labels, j.base_path, j.error_message,
       j.total, r.running, j.done, j.failed, j.cancelled, j.reused, j.rows, j.bytes, j.version,
       j.run_at, j.created_at, j.updated_at, COALESCE(j.started_at, r.started_at) AS started_at, j.completed_at,
       j.idempotency_key, j.request_hash, m.rows AS moving_rows, m.bytes AS moving_bytes, m.chunks AS moving_chunks,
       j.identity, j.department, j.scope, (j.version << 32) + r.running + m.reports AS shown_version
FROM job j
CROSS JOIN LATERAL (
    SELECT count(*) AS running, min(c.started_at) AS started_at
    FROM job_chunk c
    WHERE c.job_id = j.id AND c.state = 'RUNNING'
) r
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(p.rows), 0)::bigint AS rows, COALESCE(sum(p.bytes), 0)::bigint AS bytes,
           COALESCE(sum(p.fraction), 0) AS chunks, COALESCE(sum(p.reports), 0)::bigint AS reports
    FROM chunk_progress p
    JOIN job_chunk c ON c.id = p.chunk_id
    WHERE p.job_id = j.id AND c.state IN ('CREATED', 'QUEUED', 'RUNNING', 'RETRY')
) m
WHERE j.pruned_at IS NULL;
