INSERT INTO job (job_id, job_type, dataset, owner, idempotency_key, request_hash, request, params,
                 status, on_failure, priority, labels, base_path, run_at, total, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'SUBMITTED', ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?15)
ON CONFLICT (owner, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING id
