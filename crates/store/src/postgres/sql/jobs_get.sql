SELECT v.*, j.result
FROM job_view v
JOIN job j ON j.id = v.id
WHERE v.job_id = ANY ($1::text[])
