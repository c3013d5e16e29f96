-- Of jobs that just completed, those that some trigger asks for are left for the duty that judges them.
-- ?1 [job, …]
INSERT INTO trigger_due (job_id, term, completed_at)
SELECT c.id, c.term, c.completed_at
FROM (
    SELECT j.id, j.completed_at, iif(j.job_type = 'EXPORT' AND j.dataset IS NOT NULL,
                     'dataset:' || j.dataset, 'job:' || j.job_type) AS term
    FROM json_each(?1) AS done CROSS JOIN job AS j ON j.id = done.value
) AS c
WHERE c.term IN (SELECT t.value FROM trigger_rule AS r CROSS JOIN json_each(r.after_terms) AS t)
ON CONFLICT DO NOTHING
