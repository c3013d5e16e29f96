-- Who a job runs for: what was kept of a verified token, the department it named, and what the job's rows
-- depend on.
ALTER TABLE job ADD COLUMN identity TEXT;
ALTER TABLE job ADD COLUMN department TEXT;
ALTER TABLE job ADD COLUMN scope TEXT NOT NULL DEFAULT '';

-- What callers see of their own and their department's jobs, newest first; and what is open of an owner.
CREATE INDEX job_of_owner ON job (owner, id DESC);
CREATE INDEX job_of_department ON job (department, id DESC) WHERE department IS NOT NULL;
CREATE INDEX job_open_of_owner ON job (owner) WHERE status IN ('SUBMITTED', 'IN_PROGRESS');

DROP VIEW job_view;
CREATE VIEW job_view AS
SELECT j.id, j.job_id, j.job_type, j.dataset, j.owner,
       CASE WHEN j.status = 'SUBMITTED'
                 AND EXISTS (SELECT 1 FROM job_chunk AS c WHERE c.job_id = j.id AND c.state = 'RUNNING')
            THEN 'IN_PROGRESS' ELSE j.status END AS status,
       j.on_failure, j.priority, j.labels, j.base_path, j.error_message, j.total,
       (SELECT count(*) FROM job_chunk AS c WHERE c.job_id = j.id AND c.state = 'RUNNING') AS running,
       j.done, j.failed, j.cancelled, j.reused, j.rows, j.bytes, j.version,
       j.run_at, j.created_at, j.updated_at,
       coalesce(j.started_at, (SELECT min(c.started_at) FROM job_chunk AS c
                               WHERE c.job_id = j.id AND c.state = 'RUNNING')) AS started_at,
       j.completed_at,
       (SELECT coalesce(sum(p.rows), 0) FROM chunk_progress AS p WHERE p.job_id = j.id) AS moving_rows,
       (SELECT coalesce(sum(p.bytes), 0) FROM chunk_progress AS p WHERE p.job_id = j.id) AS moving_bytes,
       (SELECT total(p.fraction) FROM chunk_progress AS p WHERE p.job_id = j.id) AS moving_chunks,
       j.identity, j.department, j.scope
FROM job AS j
WHERE j.pruned_at IS NULL;

-- Who did what; append-only, and kept longer than jobs.
CREATE TABLE audit (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    actor  TEXT    NOT NULL,
    act    TEXT    NOT NULL,
    job_id TEXT,
    detail TEXT
) STRICT;
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_of_actor ON audit (actor, id DESC);
CREATE INDEX audit_of_job ON audit (job_id, id DESC) WHERE job_id IS NOT NULL;
