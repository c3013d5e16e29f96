SELECT id, name FROM queue
