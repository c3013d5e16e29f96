-- Renews every lease and slot of one process. Rows that another transaction holds are skipped and reported, not waited
-- for.
WITH asked AS MATERIALIZED (
    SELECT DISTINCT a.id, a.fence FROM unnest($2::bigint[], $3::bigint[]) AS a (id, fence) ORDER BY a.id, a.fence
), held AS MATERIALIZED (
    SELECT a.id, a.fence
    FROM asked a
    CROSS JOIN LATERAL (
        SELECT FROM outhaul.job_chunk c
        WHERE c.id = a.id AND c.fence = a.fence AND c.state || '' = 'RUNNING' AND c.worker_id = $1
        FOR UPDATE SKIP LOCKED
    ) c
), renewed AS (
    UPDATE outhaul.job_chunk c
    SET lease_until = clock_timestamp() + $6::interval
    WHERE c.id = ANY (ARRAY(SELECT h.id FROM held h))
), slots AS (
    UPDATE outhaul.queue_slot s
    SET lease_until = clock_timestamp() + $6::interval
    FROM unnest($4::integer[], $5::integer[]) AS g (queue_id, slot)
    WHERE s.queue_id = g.queue_id AND s.slot = g.slot AND s.worker_id = $1
    RETURNING s.queue_id, s.slot
), seen AS (
    UPDATE outhaul.worker SET last_seen_at = clock_timestamp() WHERE id = $1
)
SELECT 'renewed' AS what, h.id, h.fence FROM held h
UNION ALL
SELECT 'slot', s.queue_id, s.slot FROM slots s
UNION ALL
SELECT 'skipped', a.id, a.fence
FROM asked a
CROSS JOIN LATERAL (
    SELECT FROM outhaul.job_chunk c
    WHERE c.id = a.id AND c.fence = a.fence AND c.state || '' = 'RUNNING' AND c.worker_id = $1
    OFFSET 0
) c
WHERE a.id NOT IN (SELECT h.id FROM held h)
