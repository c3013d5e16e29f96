-- Whatever another waits for stays until that has gone on.
DELETE FROM job
WHERE pruned_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM job_chunk AS c WHERE c.job_id = job.id)
  AND NOT EXISTS (SELECT 1 FROM job_parent AS w WHERE w.parent_id = job.id AND w.settled = 0)
