UPDATE outhaul.trigger_fire
SET state = $2, job_id = $3, detail = $4, at = clock_timestamp()
WHERE id = $1 AND state || '' = 'due'
RETURNING id, value, parents, state, job_id, detail, at
