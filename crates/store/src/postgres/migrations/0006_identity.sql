-- Who a job runs for: what was kept of a verified token, the department it named, and what the job's rows
-- depend on.
ALTER TABLE job ADD COLUMN identity text;
ALTER TABLE job ADD COLUMN department text;
ALTER TABLE job ADD COLUMN scope text NOT NULL DEFAULT '';

-- What callers see of their own and their department's jobs, newest first; and what is open of an owner.
CREATE INDEX job_of_owner ON job (owner, id DESC);
CREATE INDEX job_of_department ON job (department, id DESC) WHERE department IS NOT NULL;
CREATE INDEX job_open_of_owner ON job (owner) WHERE status IN ('SUBMITTED', 'IN_PROGRESS');

CREATE OR REPLACE VIEW job_view AS
SELECT j.id, j.job_id, j.job_type, j.dataset, j.owner, j.status AS stored_status,
       CASE WHEN j.status = 'SUBMITTED' AND r.running > 0 THEN 'IN_PROGRESS' ELSE j.status END AS status,
       j.on_failure, j.priority, j.labels, j.base_path, j.error_message,
       j.total, r.running, j.done, j.failed, j.cancelled, j.reused, j.rows, j.bytes, j.version,
       j.run_at, j.created_at, j.updated_at, COALESCE(j.started_at, r.started_at) AS started_at, j.completed_at,
       j.idempotency_key, j.request_hash, m.rows AS moving_rows, m.bytes AS moving_bytes, m.chunks AS moving_chunks,
       j.identity, j.department, j.scope
FROM job j
CROSS JOIN LATERAL (
    SELECT count(*) AS running, min(c.started_at) AS started_at
    FROM job_chunk c
    WHERE c.job_id = j.id AND c.state = 'RUNNING'
) r
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(p.rows), 0)::bigint AS rows, COALESCE(sum(p.bytes), 0)::bigint AS bytes,
           COALESCE(sum(p.fraction), 0) AS chunks
    FROM chunk_progress p
    JOIN job_chunk c ON c.id = p.chunk_id
    WHERE p.job_id = j.id AND c.state IN ('CREATED', 'QUEUED', 'RUNNING', 'RETRY')
) m
WHERE j.pruned_at IS NULL;

-- Who did what; append-only, and kept longer than jobs.
CREATE TABLE audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor  text NOT NULL,
    act    text NOT NULL,
    job_id text,
    detail text
);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_of_actor ON audit (actor, id DESC);
CREATE INDEX audit_of_job ON audit (job_id, id DESC) WHERE job_id IS NOT NULL;
