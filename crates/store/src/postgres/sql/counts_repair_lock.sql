-- The job's row first, then (in the next statement, with a new snapshot) the count.
SELECT j.id
FROM outhaul.job j
WHERE j.id = $1 AND j.completed_at IS NULL AND j.waits_for = 0
  AND GREATEST(j.updated_at, j.checked_at) < now() - $2::interval
FOR UPDATE SKIP LOCKED
