-- Jobs of this very transaction: nothing of them can run yet, so the columns that job_view counts are 0.
SELECT id, job_id, job_type, dataset, owner, status, on_failure, priority, labels, base_path, error_message, total,
       0::bigint AS running, done, failed, cancelled, reused, rows, bytes, version, version << 32 AS shown_version, run_at,
       created_at, updated_at, started_at, completed_at, request_hash, 0::bigint AS moving_rows,
       0::bigint AS moving_bytes, 0::double precision AS moving_chunks, identity, scope
FROM outhaul.job
WHERE id = ANY ($1::bigint[])
