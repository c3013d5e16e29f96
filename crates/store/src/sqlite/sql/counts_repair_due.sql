-- ?1 not looked at since, ?2 limit
SELECT id FROM job WHERE completed_at IS NULL AND waits_for = 0 AND max(updated_at, coalesce(checked_at, 0)) < ?1
ORDER BY max(updated_at, coalesce(checked_at, 0)) LIMIT ?2
