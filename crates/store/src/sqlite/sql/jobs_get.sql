-- ?1 [job id, …]
SELECT v.*, (SELECT j.result FROM job AS j WHERE j.id = v.id) AS result
FROM job_view AS v
WHERE v.job_id IN (SELECT value FROM json_each(?1))
