-- ?1 job id
SELECT s.name, s.completed_at
FROM job AS j
CROSS JOIN job_chunk AS c ON c.job_id = j.id
CROSS JOIN step AS s ON s.chunk_id = c.id
WHERE j.job_id = ?1 AND j.pruned_at IS NULL AND substr(s.name, 1, 1) <> '~'
ORDER BY s.completed_at, s.name
