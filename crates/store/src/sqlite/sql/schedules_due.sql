-- ?1 the moment, ?2 limit
SELECT * FROM schedule WHERE paused = 0 AND fire_at <= ?1 ORDER BY fire_at, id LIMIT ?2
