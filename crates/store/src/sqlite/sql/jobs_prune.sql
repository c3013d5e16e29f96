-- A job that another job waits for stays until that dependency is settled.
DELETE FROM job
WHERE pruned_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM job_chunk AS c WHERE c.job_id = job.id)
  AND NOT EXISTS (SELECT 1 FROM job_parent AS w WHERE w.parent_id = job.id AND w.settled = 0)
