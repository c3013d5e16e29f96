-- ?1 [[queue, slot], …], ?2 lease until, ?3 worker
UPDATE queue_slot
SET lease_until = ?2
FROM json_each(?1) AS held
WHERE queue_slot.queue_id = held.value ->> 0 AND queue_slot.slot = held.value ->> 1
  AND queue_slot.worker_id = ?3
RETURNING queue_id, slot
