-- A job of another owner is not found, unless the engine asked for the wait.
-- ?1 [job id, …], ?2 owner, ?3 the job that the engine asked to wait for
SELECT j.id, j.job_id
FROM job AS j
WHERE j.job_id IN (SELECT value FROM json_each(?1)) AND (j.owner = ?2 OR j.job_id = ?3) AND j.pruned_at IS NULL
