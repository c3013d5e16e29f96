UPDATE outhaul.job
SET pruned_at = now(), idempotency_key = NULL
WHERE id = ANY (ARRAY(
          SELECT j.id
          FROM outhaul.job j
          WHERE j.completed_at < now() - $1::interval AND j.pruned_at IS NULL
            -- Kept for as long as another waits for it.
            AND NOT EXISTS (SELECT FROM outhaul.job_parent w WHERE w.parent_id = j.id AND NOT w.settled)
          ORDER BY j.completed_at
          LIMIT $2
          FOR UPDATE SKIP LOCKED))
  AND completed_at < now() - $1::interval
