-- ?1 owner, ?2 idempotency key, ?3 now − window
UPDATE job SET idempotency_key = NULL
WHERE owner = ?1 AND idempotency_key = ?2 AND completed_at < ?3
