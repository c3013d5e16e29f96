-- The unique indexes decide; who finds a row already there gets none back.
INSERT INTO job (job_id, job_type, dataset, owner, idempotency_key, request_hash, request, params,
                 status, on_failure, priority, labels, base_path, run_at, total, created_at, updated_at,
                 unique_key, waits_for, on_parent_failure, identity, department, scope)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'SUBMITTED', ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?15, ?16, ?17, ?18,
        ?19, ?19 ->> 'department', ?20)
ON CONFLICT DO NOTHING
RETURNING id
