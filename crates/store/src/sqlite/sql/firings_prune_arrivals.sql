-- ?1 completed before, ?2 limit
DELETE FROM trigger_arrival
WHERE rowid IN (SELECT rowid FROM trigger_arrival WHERE completed_at < ?1 ORDER BY completed_at LIMIT ?2)
