SELECT s.name, s.completed_at
FROM outhaul.job j
JOIN outhaul.job_chunk c ON c.job_id = j.id
JOIN outhaul.step s ON s.chunk_id = c.id
WHERE j.job_id = $1 AND j.pruned_at IS NULL AND s.name NOT LIKE '~%'
ORDER BY s.completed_at, s.name
