DELETE FROM job
WHERE pruned_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM job_chunk AS c WHERE c.job_id = job.id)
