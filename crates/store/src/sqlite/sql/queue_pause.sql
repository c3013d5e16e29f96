-- ?1 name, ?2 paused
UPDATE queue SET paused = ?2 WHERE name = ?1
