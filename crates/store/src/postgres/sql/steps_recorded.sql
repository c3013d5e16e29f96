-- No row: the lease is lost. One row without a name: nothing was recorded yet.
SELECT s.name, s.result, s.completed_at
FROM outhaul.job_chunk c
LEFT JOIN outhaul.step s ON s.chunk_id = c.id
WHERE c.id = $1 AND c.fence = $2 AND c.state || '' = 'RUNNING'
ORDER BY s.completed_at, s.name
