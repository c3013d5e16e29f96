-- Chunks that must not start, because their job failed and stops at its first failure.
WITH failed AS MATERIALIZED (
    SELECT j.id FROM job j WHERE j.completed_at IS NULL AND j.status = 'FAILED' AND j.on_failure = 'stop'
), picked AS MATERIALIZED (
    SELECT c.id
    FROM job_chunk c
    WHERE c.job_id = ANY (ARRAY(SELECT id FROM failed))
      AND (c.state IN ('QUEUED', 'RETRY') OR (c.state = 'CREATED' AND NOT c.held))
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
UPDATE job_chunk c
SET state = 'CREATED', held = true
WHERE c.id = ANY (ARRAY(SELECT id FROM picked))
