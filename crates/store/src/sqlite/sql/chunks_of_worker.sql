SELECT c.id, c.fence
FROM job_chunk AS c INDEXED BY chunk_running
WHERE c.state = 'RUNNING' AND c.worker_id = ?1
ORDER BY c.id
