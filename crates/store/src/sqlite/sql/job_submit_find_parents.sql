-- Another's job is none. ?1 [job id, …], ?2 owner
SELECT j.id, j.job_id
FROM job AS j
WHERE j.job_id IN (SELECT value FROM json_each(?1)) AND j.owner = ?2 AND j.pruned_at IS NULL
