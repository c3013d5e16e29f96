SELECT v.*, j.result
FROM job_view v
JOIN job j ON j.id = v.id
WHERE j.job_type = $1 AND j.unique_key = $2 AND j.status IN ('SUBMITTED', 'IN_PROGRESS')
