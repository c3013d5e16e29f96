-- ?1 firing
SELECT EXISTS (SELECT 1 FROM trigger_fire WHERE id = ?1 AND state = 'due')
