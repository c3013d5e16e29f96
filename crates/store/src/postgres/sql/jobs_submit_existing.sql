SELECT v.*, j.result
FROM job_view v
JOIN job j ON j.id = v.id
WHERE v.owner = $1 AND v.idempotency_key = $2
