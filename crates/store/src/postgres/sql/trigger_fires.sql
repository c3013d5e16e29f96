SELECT id, value, parents, state, job_id, detail, at
FROM outhaul.trigger_fire
WHERE trigger_id = $1
ORDER BY id DESC
LIMIT $2
