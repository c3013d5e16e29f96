-- ?1 limit
SELECT * FROM trigger_fire WHERE state = 'due' ORDER BY id LIMIT ?1
