-- Another's job is none, unless the engine waits for it. ?1 [job id, …], ?2 owner, ?3 what the engine waits for
SELECT j.id, j.job_id
FROM job AS j
WHERE j.job_id IN (SELECT value FROM json_each(?1)) AND (j.owner = ?2 OR j.job_id = ?3) AND j.pruned_at IS NULL
