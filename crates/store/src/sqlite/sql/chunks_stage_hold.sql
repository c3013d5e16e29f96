-- A job may be settled before all of its chunks are held, so jobs settled after ?2 are looked at too.
-- ?1 limit, ?2 a day ago
UPDATE job_chunk
SET state = 'CREATED', held = 1
WHERE id IN (SELECT c.id
             FROM (SELECT id FROM job INDEXED BY job_closing
                   WHERE status IN ('FAILED', 'CANCELLED') AND status = 'FAILED' AND on_failure = 'stop'
                     AND completed_at IS NULL
                   UNION ALL
                   SELECT id FROM job INDEXED BY job_closing
                   WHERE status IN ('FAILED', 'CANCELLED') AND status = 'FAILED' AND on_failure = 'stop'
                     AND completed_at > ?2) AS j
             CROSS JOIN job_chunk AS c INDEXED BY job_chunk_pending ON c.job_id = j.id
             WHERE c.state IN ('CREATED', 'QUEUED', 'RETRY') AND c.held = 0
             LIMIT ?1)
