-- The status asked for is the one that is shown: SUBMITTED with a running chunk is IN_PROGRESS.
-- ?1 status, ?2 job type, ?3 dataset, ?4 owner, ?5 created at or after, ?6 created before,
-- ?7 older than this position, ?8 limit
SELECT j.id, j.job_id, j.job_type, j.dataset, j.owner, j.status, j.on_failure, j.priority, j.labels,
       j.base_path, j.error_message, j.total, j.done, j.failed, j.cancelled, j.reused, j.rows, j.bytes,
       j.version, j.run_at, j.created_at, j.updated_at, j.completed_at,
       (SELECT count(*) FROM job_chunk AS c WHERE c.job_id = j.id AND c.state = 'RUNNING') AS running,
       coalesce(j.started_at, (SELECT min(c.started_at) FROM job_chunk AS c
                               WHERE c.job_id = j.id AND c.state = 'RUNNING')) AS started_at
FROM job AS j
WHERE j.id < coalesce(?7, 9223372036854775807)
  AND (?2 IS NULL OR j.job_type = ?2)
  AND (?3 IS NULL OR j.dataset = ?3)
  AND (?4 IS NULL OR j.owner = ?4)
  AND (?5 IS NULL OR j.created_at >= ?5)
  AND (?6 IS NULL OR j.created_at < ?6)
  AND (?1 IS NULL
       OR ?1 = iif(j.status = 'SUBMITTED'
                   AND EXISTS (SELECT 1 FROM job_chunk AS c WHERE c.job_id = j.id AND c.state = 'RUNNING'),
                   'IN_PROGRESS', j.status))
ORDER BY j.id DESC
LIMIT ?8
