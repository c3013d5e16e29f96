SELECT id, at, actor, act, job_id, detail
FROM outhaul.audit
WHERE ($1::text IS NULL OR actor = $1)
  AND ($2::text IS NULL OR job_id = $2)
  AND ($3::text IS NULL OR act = $3)
  AND ($4::bigint IS NULL OR id < $4)
ORDER BY id DESC
LIMIT $5
