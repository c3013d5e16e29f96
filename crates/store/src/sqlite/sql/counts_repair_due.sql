-- ?1 not looked at since, ?2 limit
SELECT id FROM job WHERE completed_at IS NULL AND updated_at < ?1 ORDER BY updated_at LIMIT ?2
