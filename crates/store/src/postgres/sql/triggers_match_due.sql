-- Jobs to be judged, in the order in which they completed; those in other hands are not waited for.
SELECT job_id, term
FROM outhaul.trigger_due
ORDER BY completed_at, job_id
LIMIT $1
FOR UPDATE SKIP LOCKED
