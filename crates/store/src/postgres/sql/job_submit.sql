-- The unique index decides between two first submissions; the loser finds no row here.
INSERT INTO job (job_id, job_type, dataset, owner, idempotency_key, request_hash, request, params,
                 on_failure, priority, labels, base_path, run_at, total)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (owner, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING id
