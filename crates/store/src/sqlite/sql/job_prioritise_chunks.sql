-- What runs keeps going, and has it when it runs again. ?1 job, ?2 priority
UPDATE job_chunk
SET priority = ?2
WHERE job_id = ?1 AND state IN ('CREATED', 'QUEUED', 'RETRY', 'RUNNING', 'DEAD')
