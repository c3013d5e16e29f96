-- In the order of their ids. A parent that ends meanwhile waits for this submission, and whoever looks
-- for its dependents afterwards finds it.
SELECT j.id, j.job_id, j.owner
FROM job j
WHERE j.job_id = ANY ($1::text[]) AND j.pruned_at IS NULL
ORDER BY j.id
FOR SHARE
