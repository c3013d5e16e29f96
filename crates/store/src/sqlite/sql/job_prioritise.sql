-- ?1 job id, ?2 priority, ?3 now
UPDATE job
SET priority = ?2, version = version + 1, updated_at = ?3
WHERE job_id = ?1 AND status IN ('SUBMITTED', 'IN_PROGRESS') AND pruned_at IS NULL
RETURNING id
