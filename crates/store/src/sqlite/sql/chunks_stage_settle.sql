-- ?1 limit, ?2 now
UPDATE job
SET completed_at = ?2, updated_at = ?2, version = version + 1
WHERE id IN (SELECT j.id
             FROM job AS j
             WHERE j.status IN ('FAILED', 'CANCELLED') AND j.completed_at IS NULL
               AND NOT EXISTS (SELECT 1 FROM job_chunk AS c
                               WHERE c.job_id = j.id AND c.state = 'RUNNING')
               AND (j.status = 'FAILED'
                    OR NOT EXISTS (SELECT 1 FROM job_chunk AS c
                                   WHERE c.job_id = j.id AND c.state IN ('CREATED', 'QUEUED', 'RETRY')))
             LIMIT ?1)
