-- Those that a redrive may move.
SELECT count(*)
FROM outhaul.job_chunk c
JOIN outhaul.job j ON j.id = c.job_id
WHERE c.state = 'DEAD' AND j.status IN ('FAILED', 'IN_PROGRESS') AND j.pruned_at IS NULL
  AND ($1::text IS NULL OR j.job_id = $1)
  AND ($2::text IS NULL OR j.job_type = $2)
  AND ($3::text IS NULL OR j.dataset = $3)
  AND ($4::text IS NULL
       OR position(lower($4) IN lower(concat_ws(E'\n', COALESCE(c.error_detail, c.error_message), c.step, j.job_id, c.chunk_key))) > 0)
  AND ($5::timestamptz IS NULL OR c.completed_at >= $5)
  AND ($6::timestamptz IS NULL OR c.completed_at < $6)
