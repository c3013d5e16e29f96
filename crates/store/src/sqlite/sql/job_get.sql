-- ?1 job id
SELECT j.id, j.job_id, j.job_type, j.dataset, j.owner, j.status, j.on_failure, j.priority, j.labels,
       j.base_path, j.error_message, j.total, j.done, j.failed, j.cancelled, j.reused, j.rows, j.bytes,
       j.version, j.run_at, j.created_at, j.updated_at, j.completed_at,
       (SELECT count(*) FROM job_chunk AS c WHERE c.job_id = j.id AND c.state = 'RUNNING') AS running,
       coalesce(j.started_at, (SELECT min(c.started_at) FROM job_chunk AS c
                               WHERE c.job_id = j.id AND c.state = 'RUNNING')) AS started_at
FROM job AS j
WHERE j.job_id = ?1
