WITH given AS (
    SELECT * FROM unnest($1::text[], $2::integer[]) AS g (name, max_concurrent)
), synced AS (
    INSERT INTO outhaul.queue (name, max_concurrent)
    SELECT name, max_concurrent FROM given ORDER BY name
    ON CONFLICT (name) DO UPDATE SET max_concurrent = EXCLUDED.max_concurrent
    RETURNING id, name, max_concurrent
), slots AS (
    INSERT INTO outhaul.queue_slot (queue_id, slot)
    SELECT s.id, n FROM synced s CROSS JOIN LATERAL generate_series(0, s.max_concurrent - 1) AS n
    ON CONFLICT DO NOTHING
)
SELECT id, name FROM synced
