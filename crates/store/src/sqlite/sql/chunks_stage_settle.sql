-- FAILED and CANCELLED jobs end when nothing of them runs and nothing is left to hold or cancel.
-- ?1 limit, ?2 now
UPDATE job
SET completed_at = ?2, updated_at = ?2, version = version + 1
WHERE id IN (SELECT j.id
             FROM job AS j INDEXED BY job_closing
             WHERE j.completed_at IS NULL AND j.status IN ('FAILED', 'CANCELLED')
               AND NOT EXISTS (SELECT 1 FROM job_chunk AS c
                               WHERE c.job_id = j.id AND c.state = 'RUNNING')
               AND NOT EXISTS (SELECT 1 FROM job_chunk AS c
                               WHERE c.job_id = j.id AND c.state IN ('CREATED', 'QUEUED', 'RETRY')
                                 AND c.held <= iif(j.status = 'CANCELLED', 1, 0))
             ORDER BY j.id
             LIMIT ?1)
