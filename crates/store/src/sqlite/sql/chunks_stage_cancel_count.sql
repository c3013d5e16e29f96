-- ?1 [job, …], one for each chunk, ?2 now
UPDATE job
SET cancelled = cancelled + moved.chunks, version = version + 1, updated_at = ?2
FROM (SELECT value AS id, count(*) AS chunks FROM json_each(?1) GROUP BY value) AS moved
WHERE job.id = moved.id
