-- ?1 [job, …]
DELETE FROM trigger_due WHERE job_id IN (SELECT value FROM json_each(?1))
