-- Their files, steps, history and progress go with them. ?1 limit
DELETE FROM job_chunk
WHERE id IN (SELECT c.id
             FROM job AS j CROSS JOIN job_chunk AS c ON c.job_id = j.id
             WHERE j.pruned_at IS NOT NULL
             LIMIT ?1)
