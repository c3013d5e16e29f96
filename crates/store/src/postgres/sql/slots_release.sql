UPDATE outhaul.queue_slot s
SET worker_id = NULL, lease_until = NULL
FROM unnest($2::integer[], $3::integer[]) AS g (queue_id, slot)
WHERE s.queue_id = g.queue_id AND s.slot = g.slot AND s.worker_id = $1
