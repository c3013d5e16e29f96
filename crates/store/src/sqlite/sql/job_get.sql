-- ?1 job id
SELECT * FROM job_view WHERE job_id = ?1
