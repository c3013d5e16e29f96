-- ?1 trigger, ?2 limit
SELECT * FROM trigger_fire WHERE trigger_id = ?1 ORDER BY id DESC LIMIT ?2
