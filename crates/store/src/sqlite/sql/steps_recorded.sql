-- No row: the lease is lost. One row without a name: nothing was recorded yet. ?1 chunk, ?2 fence
SELECT s.name, s.result, s.completed_at
FROM job_chunk AS c
LEFT JOIN step AS s ON s.chunk_id = c.id
WHERE c.id = ?1 AND c.fence = ?2 AND c.state = 'RUNNING'
ORDER BY s.completed_at, s.name
