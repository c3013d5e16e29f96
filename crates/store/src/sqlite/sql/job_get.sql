-- The result is read for one job only: it may be large. A job that the caller may not see is left out here, so that
-- it is neither read nor built. ?1 job id, ?2 subject and ?3 department of who asks, where not all may be seen
SELECT v.*, (SELECT j.result FROM job AS j WHERE j.id = v.id) AS result
FROM job_view AS v
WHERE v.job_id = ?1 AND (?2 IS NULL OR v.owner = ?2 OR v.department = ?3)
