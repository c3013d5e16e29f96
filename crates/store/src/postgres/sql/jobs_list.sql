-- `stored_status` lets the index choose; `status` is what is shown.
SELECT id, job_id, job_type, dataset, owner, status, on_failure, priority, labels, base_path, error_message, total,
       running, done, failed, cancelled, reused, rows, bytes, version, shown_version, run_at, created_at, updated_at,
       started_at, completed_at, request_hash, moving_rows, moving_bytes, moving_chunks, identity, scope
FROM outhaul.job_view
WHERE ($1::text IS NULL OR (status = $1 AND stored_status = ANY ($2::text[])))
  AND ($3::text IS NULL OR job_type = $3)
  AND ($4::text IS NULL OR dataset = $4)
  AND ($5::text IS NULL OR owner = $5)
  AND ($6::timestamptz IS NULL OR created_at >= $6)
  AND ($7::timestamptz IS NULL OR created_at < $7)
  AND ($8::bigint IS NULL OR id < $8)
  AND ($10::text IS NULL OR owner = $10 OR department = $11)
ORDER BY id DESC
LIMIT $9
