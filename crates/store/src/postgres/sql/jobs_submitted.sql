SELECT id, job_id, job_type, dataset, owner, status, on_failure, priority, labels, base_path, error_message, total,
       running, done, failed, cancelled, reused, rows, bytes, version, shown_version, run_at, created_at, updated_at,
       started_at, completed_at, request_hash, moving_rows, moving_bytes, moving_chunks, identity, scope
FROM outhaul.job_view
WHERE id = ANY ($1::bigint[])
