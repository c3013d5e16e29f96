-- ?1 recorded before, ?2 limit
DELETE FROM schedule_slot WHERE rowid IN (SELECT rowid FROM schedule_slot WHERE at < ?1 ORDER BY at LIMIT ?2)
