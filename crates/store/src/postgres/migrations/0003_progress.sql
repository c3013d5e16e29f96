-- How far chunks are that run longer than a moment. A row goes when its chunk is settled: what was done
-- is in the job's counts then.
CREATE TABLE chunk_progress (
    chunk_id   bigint PRIMARY KEY,
    job_id     bigint NOT NULL,
    rows       bigint NOT NULL,
    bytes      bigint NOT NULL,
    fraction   double precision NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

CREATE INDEX progress_of_job ON chunk_progress (job_id);

-- With what its unsettled chunks have done so far. A row whose chunk has just settled counts no more.
CREATE OR REPLACE VIEW job_view AS
SELECT j.id, j.job_id, j.job_type, j.dataset, j.owner, j.status AS stored_status,
       CASE WHEN j.status = 'SUBMITTED' AND r.running > 0 THEN 'IN_PROGRESS' ELSE j.status END AS status,
       j.on_failure, j.priority, j.labels, j.base_path, j.error_message,
       j.total, r.running, j.done, j.failed, j.cancelled, j.reused, j.rows, j.bytes, j.version,
       j.run_at, j.created_at, j.updated_at, COALESCE(j.started_at, r.started_at) AS started_at, j.completed_at,
       j.idempotency_key, j.request_hash, m.rows AS moving_rows, m.bytes AS moving_bytes, m.chunks AS moving_chunks
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
