SELECT c.id, c.fence
FROM outhaul.job_chunk c
WHERE c.state = 'RUNNING' AND c.worker_id = $1
ORDER BY c.id
