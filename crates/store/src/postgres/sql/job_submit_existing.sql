SELECT * FROM job_view WHERE owner = $1 AND idempotency_key = $2
