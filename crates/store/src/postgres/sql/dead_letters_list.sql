SELECT c.id, j.job_id, c.chunk_key, j.job_type, j.dataset, COALESCE(c.error_detail, c.error_message, '') AS cause, c.step,
       c.attempt,
       COALESCE(c.first_failed_at, c.completed_at) AS first_failed_at, c.completed_at AS last_failed_at
FROM outhaul.job_chunk c
JOIN outhaul.job j ON j.id = c.job_id
WHERE c.state = 'DEAD' AND j.pruned_at IS NULL
  AND ($1::text IS NULL OR j.job_id = $1)
  AND ($2::text IS NULL OR j.job_type = $2)
  AND ($3::text IS NULL OR j.dataset = $3)
  AND ($4::text IS NULL
       OR position(lower($4) IN lower(concat_ws(E'\n', COALESCE(c.error_detail, c.error_message), c.step, j.job_id, c.chunk_key))) > 0)
  AND ($5::timestamptz IS NULL OR c.completed_at >= $5)
  AND ($6::timestamptz IS NULL OR c.completed_at < $6)
  AND ($7::timestamptz IS NULL OR (c.completed_at, c.id) < ($7, $8::bigint))
ORDER BY c.completed_at DESC, c.id DESC
LIMIT $9
