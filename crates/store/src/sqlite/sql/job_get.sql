-- The result is read for one job only: it may be large. ?1 job id
SELECT v.*, (SELECT j.result FROM job AS j WHERE j.id = v.id) AS result FROM job_view AS v WHERE v.job_id = ?1
