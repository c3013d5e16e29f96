-- ?1 job
SELECT count(*) FILTER (WHERE state = 'DEAD') AS dead,
       count(*) FILTER (WHERE state = 'CREATED' AND held = 1) AS held
FROM job_chunk WHERE job_id = ?1
