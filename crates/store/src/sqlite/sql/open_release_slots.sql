UPDATE queue_slot SET worker_id = NULL, lease_until = NULL WHERE worker_id IS NOT NULL
