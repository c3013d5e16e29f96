UPDATE job
SET pruned_at = now(), idempotency_key = NULL
WHERE id = ANY (ARRAY(
          SELECT j.id
          FROM job j
          WHERE j.completed_at < now() - $1::interval AND j.pruned_at IS NULL
          ORDER BY j.completed_at
          LIMIT $2
          FOR UPDATE SKIP LOCKED))
  AND completed_at < now() - $1::interval
