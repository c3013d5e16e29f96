-- What the broker may have lost is announced again soon.
WITH doubted AS MATERIALIZED (
    SELECT a.chunk_id
    FROM outhaul.announcement a
    WHERE a.until > clock_timestamp() + $1::interval
    ORDER BY a.chunk_id
    FOR UPDATE
)
UPDATE outhaul.announcement a
SET until = LEAST(a.until, clock_timestamp() + $1::interval)
WHERE a.chunk_id = ANY (ARRAY(SELECT chunk_id FROM doubted))
