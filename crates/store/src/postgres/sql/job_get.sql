-- The result is read for one job only: it may be large.
SELECT v.*, j.result
FROM job_view v
JOIN job j ON j.id = v.id
WHERE v.job_id = $1
