-- ?1 completed before, ?2 limit
DELETE FROM job
WHERE id IN (SELECT j.id
             FROM job AS j
             WHERE j.completed_at IS NOT NULL AND j.completed_at < ?1
               AND NOT EXISTS (SELECT 1 FROM job_chunk AS c WHERE c.job_id = j.id)
             LIMIT ?2)
