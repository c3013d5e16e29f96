-- ?1 worker
UPDATE queue_slot SET worker_id = NULL, lease_until = NULL WHERE worker_id = ?1
