-- ?1 owner, ?2 idempotency key
SELECT job_id, request_hash FROM job WHERE owner = ?1 AND idempotency_key = ?2
