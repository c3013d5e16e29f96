-- The last statement of a transaction that holds a caller's own changes: here a row of any fence means
-- that the changes were applied before, and this transaction must not commit.
WITH owner AS MATERIALIZED (
    SELECT c.id, c.job_id
    FROM outhaul.job_chunk c
    WHERE c.id = $1 AND c.fence = $2 AND c.state || '' = 'RUNNING' AND c.lease_until > clock_timestamp()
    FOR SHARE
), recorded AS (
    INSERT INTO outhaul.step (chunk_id, name, fence, result)
    SELECT o.id, $3, $2, $4 FROM owner o
    ON CONFLICT (chunk_id, name) DO NOTHING
    RETURNING chunk_id
), told AS (
    UPDATE outhaul.job j
    SET version = j.version + 1, updated_at = clock_timestamp()
    FROM owner o, recorded r
    WHERE j.id = o.job_id AND o.id = r.chunk_id
)
SELECT EXISTS (SELECT FROM recorded)
