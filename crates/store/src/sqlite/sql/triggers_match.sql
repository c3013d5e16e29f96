-- In the order in which they completed; what is gone is forgotten. ?1 limit
SELECT d.job_id AS id, d.term, j.job_id, j.labels, j.owner, d.completed_at
FROM (SELECT * FROM trigger_due ORDER BY completed_at, job_id LIMIT ?1) AS d
LEFT JOIN job AS j ON j.id = d.job_id AND j.status = 'COMPLETED'
ORDER BY d.completed_at, d.job_id
