-- Renews every lease and slot of one process. Rows that another transaction holds are skipped and
-- reported, not waited for.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::bigint[]) AS a (id, fence)
), alive AS MATERIALIZED (
    SELECT c.id, c.fence
    FROM asked a
    JOIN job_chunk c ON c.id = a.id AND c.fence = a.fence
    WHERE c.id = ANY ($2) AND c.state = 'RUNNING' AND c.worker_id = $1
), held AS MATERIALIZED (
    SELECT c.id
    FROM job_chunk c
    JOIN asked a ON a.id = c.id AND a.fence = c.fence
    WHERE c.id = ANY ($2) AND c.state = 'RUNNING' AND c.worker_id = $1
    ORDER BY c.id
    FOR UPDATE OF c SKIP LOCKED
), renewed AS (
    UPDATE job_chunk c
    SET lease_until = clock_timestamp() + $6::interval
    WHERE c.id = ANY (ARRAY(SELECT id FROM held))
    RETURNING c.id, c.fence
), slots AS (
    UPDATE queue_slot s
    SET lease_until = clock_timestamp() + $6::interval
    FROM unnest($4::integer[], $5::integer[]) AS g (queue_id, slot)
    WHERE s.queue_id = g.queue_id AND s.slot = g.slot AND s.worker_id = $1
    RETURNING s.queue_id, s.slot
), seen AS (
    UPDATE worker SET last_seen_at = clock_timestamp() WHERE id = $1
)
SELECT 'renewed' AS what, r.id, r.fence FROM renewed r
UNION ALL
SELECT 'slot', s.queue_id, s.slot FROM slots s
UNION ALL
SELECT 'skipped', a.id, a.fence FROM alive a WHERE a.id <> ALL (ARRAY(SELECT id FROM held))
