-- Frees a key whose job finished longer ago than the idempotency window.
UPDATE job
SET idempotency_key = NULL
WHERE owner = $1 AND idempotency_key = $2 AND completed_at < now() - $3::interval
