-- ?1 name, ?2 now
UPDATE schedule SET paused = 1, updated_at = iif(paused, updated_at, ?2) WHERE name = ?1
