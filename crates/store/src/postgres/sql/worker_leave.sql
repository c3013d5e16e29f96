WITH freed AS (
    UPDATE outhaul.queue_slot SET worker_id = NULL, lease_until = NULL WHERE worker_id = $1
)
DELETE FROM outhaul.worker WHERE id = $1
