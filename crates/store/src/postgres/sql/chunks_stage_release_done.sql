-- Released jobs of which nothing is left to move; what has its time still to come is found by that.
UPDATE outhaul.job
SET released = NULL
WHERE id = ANY (ARRAY(
          SELECT j.id
          FROM outhaul.job j
          WHERE j.released IS NOT NULL
            AND NOT EXISTS (
                SELECT FROM outhaul.job_chunk c
                WHERE c.job_id = j.id AND c.state IN ('CREATED', 'QUEUED', 'RETRY') AND c.state = 'CREATED'
                  AND NOT c.held AND (j.released = 'fail' OR c.run_at IS NULL OR c.run_at <= now()))
          ORDER BY j.id
          LIMIT $1
          FOR NO KEY UPDATE OF j SKIP LOCKED))
