-- A slot is free when nobody holds it, or when its holder has not renewed it in time.
WITH free AS MATERIALIZED (
    SELECT s.queue_id, s.slot
    FROM outhaul.queue_slot s
    JOIN outhaul.queue q ON q.id = s.queue_id
    WHERE s.queue_id = $2 AND s.slot < q.max_concurrent
      AND (s.worker_id IS NULL OR s.lease_until < clock_timestamp())
    ORDER BY s.slot
    LIMIT $3
    FOR UPDATE OF s SKIP LOCKED
)
UPDATE outhaul.queue_slot s
SET worker_id = $1, lease_until = clock_timestamp() + $4::interval
FROM free f
WHERE s.queue_id = f.queue_id AND s.slot = f.slot
RETURNING s.queue_id, s.slot
