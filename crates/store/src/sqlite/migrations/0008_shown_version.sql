-- A number that moves with everything that is shown of a job. Claims and progress leave the job's row alone, so
-- what they change is added to the row's version, which counts in steps of 2^32: every statement that takes a
-- chunk out of RUNNING, or settles it, raises the row's version, and so outweighs all that it takes away.
ALTER TABLE chunk_progress ADD COLUMN reports INTEGER NOT NULL DEFAULT 1;

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
       j.identity, j.department, j.scope,
       (j.version << 32)
       + (SELECT count(*) FROM job_chunk AS c WHERE c.job_id = j.id AND c.state = 'RUNNING')
       + (SELECT coalesce(sum(p.reports), 0) FROM chunk_progress AS p WHERE p.job_id = j.id) AS shown_version
FROM job AS j
WHERE j.pruned_at IS NULL;
