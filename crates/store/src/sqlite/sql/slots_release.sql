-- ?1 [[queue, slot], …], ?2 worker
UPDATE queue_slot
SET worker_id = NULL, lease_until = NULL
FROM json_each(?1) AS held
WHERE queue_slot.queue_id = held.value ->> 0 AND queue_slot.slot = held.value ->> 1
  AND queue_slot.worker_id = ?2
