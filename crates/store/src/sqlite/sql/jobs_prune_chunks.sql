-- Their rows in chunk_file go with them. ?1 completed before, ?2 limit
DELETE FROM job_chunk
WHERE id IN (SELECT c.id
             FROM job AS j CROSS JOIN job_chunk AS c ON c.job_id = j.id
             WHERE j.completed_at IS NOT NULL AND j.completed_at < ?1
             ORDER BY j.completed_at
             LIMIT ?2)
