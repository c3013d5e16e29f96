-- By the chunk's key: the text added to its state keeps the index over running chunks out of it.
-- The chunk is locked against takeover until the step is committed: whoever claims it next sees the
-- step. A row under the same fence is a try of ours whose answer was lost.
WITH owner AS MATERIALIZED (
    SELECT c.id, c.job_id
    FROM outhaul.job_chunk c
    WHERE c.id = $1 AND c.fence = $2 AND c.state || '' = 'RUNNING'
    FOR SHARE
), recorded AS (
    INSERT INTO outhaul.step (chunk_id, name, fence, result)
    SELECT o.id, $3, $2, $4 FROM owner o
    ON CONFLICT (chunk_id, name) DO UPDATE SET fence = step.fence WHERE step.fence = excluded.fence
    RETURNING chunk_id
), told AS (
    UPDATE outhaul.job j
    SET version = j.version + 1, updated_at = clock_timestamp()
    FROM owner o, recorded r
    WHERE j.id = o.job_id AND o.id = r.chunk_id
)
SELECT EXISTS (SELECT FROM recorded)
