-- The result is read for one job only: it may be large. A job that the caller may not see is left out here, so that
-- it is neither read nor built.
SELECT v.id, v.job_id, v.job_type, v.dataset, v.owner, v.status, v.on_failure, v.priority, v.labels, v.base_path,
       v.error_message, v.total, v.running, v.done, v.failed, v.cancelled, v.reused, v.rows, v.bytes, v.version,
       v.shown_version, v.run_at, v.created_at, v.updated_at, v.started_at, v.completed_at, v.request_hash,
       v.moving_rows, v.moving_bytes, v.moving_chunks, v.identity, v.scope, j.result
FROM outhaul.job_view v
JOIN outhaul.job j ON j.id = v.id
WHERE v.job_id = $1 AND ($2::text IS NULL OR v.owner = $2 OR v.department = $3)
