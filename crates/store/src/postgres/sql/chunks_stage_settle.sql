-- FAILED and CANCELLED jobs end when nothing of them runs and nothing is left to hold or cancel.
UPDATE outhaul.job j
SET completed_at = now(), version = j.version + 1, updated_at = now()
WHERE j.id = ANY (ARRAY(
          SELECT o.id
          FROM outhaul.job o
          WHERE o.status IN ('FAILED', 'CANCELLED') AND o.completed_at IS NULL
            AND NOT EXISTS (SELECT FROM outhaul.job_chunk r WHERE r.job_id = o.id AND r.state = 'RUNNING')
            AND NOT EXISTS (
                SELECT FROM outhaul.job_chunk c
                WHERE c.job_id = o.id
                  AND c.state IN ('CREATED', 'QUEUED', 'RETRY') AND (o.status = 'CANCELLED' OR NOT c.held))
          ORDER BY o.id
          LIMIT $1
          FOR UPDATE OF o SKIP LOCKED))
  AND j.completed_at IS NULL AND j.status IN ('FAILED', 'CANCELLED')
