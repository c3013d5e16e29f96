-- ?1 job id
SELECT id, status FROM job WHERE job_id = ?1 AND pruned_at IS NULL
