-- Frees keys whose job finished longer ago than the idempotency window; in the order of their rows, as
-- every statement that locks several jobs.
UPDATE job
SET idempotency_key = NULL
WHERE id = ANY (ARRAY(
          SELECT j.id
          FROM unnest($1::text[], $2::text[]) AS k (owner, idempotency_key)
          JOIN job j ON j.owner = k.owner AND j.idempotency_key = k.idempotency_key
          WHERE j.completed_at < now() - $3::interval
          ORDER BY j.id
          FOR UPDATE OF j))
  AND completed_at < now() - $3::interval
