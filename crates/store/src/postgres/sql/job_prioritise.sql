-- Chunks before the job's row, ascending: the lock order of every finish, which is why the job's update
-- looks at that of the chunks. What runs keeps going, and has the priority if it is tried again.
WITH target AS MATERIALIZED (
    SELECT j.id, j.status
    FROM outhaul.job j
    WHERE j.job_id = $1 AND j.pruned_at IS NULL
), locked AS MATERIALIZED (
    SELECT c.id
    FROM outhaul.job_chunk c
    WHERE c.job_id = (SELECT t.id FROM target t WHERE t.status IN ('SUBMITTED', 'IN_PROGRESS'))
      AND c.state IN ('CREATED', 'QUEUED', 'RETRY', 'RUNNING', 'DEAD')
    ORDER BY c.id
    FOR UPDATE
), moved AS (
    UPDATE outhaul.job_chunk c SET priority = $2 WHERE c.id = ANY (ARRAY(SELECT id FROM locked)) RETURNING c.id
), changed AS (
    UPDATE outhaul.job j
    SET priority = $2, version = j.version + 1, updated_at = clock_timestamp()
    WHERE (SELECT count(*) FROM moved) >= 0
      AND j.id = (SELECT t.id FROM target t) AND j.status IN ('SUBMITTED', 'IN_PROGRESS')
    RETURNING j.id
)
SELECT t.status, EXISTS (SELECT FROM changed) AS changed FROM target t
