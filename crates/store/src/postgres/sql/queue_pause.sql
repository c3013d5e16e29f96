UPDATE outhaul.queue SET paused = $2 WHERE name = $1
