-- Chunks that fail with what their job waits for. ?1 job
SELECT c.id, c.job_id, c.state, c.attempt
FROM job_chunk AS c
CROSS JOIN job AS j ON j.id = c.job_id
WHERE c.job_id = ?1 AND c.state = 'CREATED' AND c.held = 0 AND j.status IN ('SUBMITTED', 'IN_PROGRESS')
