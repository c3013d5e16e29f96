-- The result is read for one job only: it may be large. A job that the caller may not see is left out here, so that
-- it is neither read nor built.
SELECT v.*, j.result
FROM job_view v
JOIN job j ON j.id = v.id
WHERE v.job_id = $1 AND ($2::text IS NULL OR v.owner = $2 OR v.department = $3)
