SELECT id, name FROM outhaul.queue
