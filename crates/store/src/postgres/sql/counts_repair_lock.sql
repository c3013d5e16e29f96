-- The job's row first, then (in the next statement, with a new snapshot) the count.
SELECT j.id
FROM job j
WHERE j.completed_at IS NULL AND j.updated_at < now() - $1::interval
ORDER BY j.updated_at
LIMIT $2
FOR UPDATE SKIP LOCKED
