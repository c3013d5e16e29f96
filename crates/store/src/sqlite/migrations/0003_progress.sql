-- How far chunks are that run longer than a moment. A row goes in the transaction that settles its
-- chunk: what was done is in the job's counts then.
CREATE TABLE chunk_progress (
    chunk_id   INTEGER PRIMARY KEY REFERENCES job_chunk (id) ON DELETE CASCADE,
    job_id     INTEGER NOT NULL,
    rows       INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    fraction   REAL    NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX progress_of_job ON chunk_progress (job_id);

-- With what its unsettled chunks have done so far.
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
       (SELECT total(p.fraction) FROM chunk_progress AS p WHERE p.job_id = j.id) AS moving_chunks
FROM job AS j
WHERE j.pruned_at IS NULL;
