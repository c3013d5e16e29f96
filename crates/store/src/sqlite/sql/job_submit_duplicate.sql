-- ?1 job type, ?2 unique key
SELECT job_id FROM job
WHERE job_type = ?1 AND unique_key = ?2 AND unique_key IS NOT NULL AND status IN ('SUBMITTED', 'IN_PROGRESS')
