-- Writes the job's row only; its chunks follow in sweeps. ?1 job id, ?2 now
UPDATE job SET status = 'CANCELLED', version = version + 1, updated_at = ?2
WHERE job_id = ?1 AND status IN ('SUBMITTED', 'IN_PROGRESS') AND pruned_at IS NULL
