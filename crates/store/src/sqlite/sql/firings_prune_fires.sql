-- ?1 recorded before, ?2 limit
DELETE FROM trigger_fire
WHERE id IN (SELECT id FROM trigger_fire WHERE at < ?1 AND state <> 'due' ORDER BY at LIMIT ?2)
