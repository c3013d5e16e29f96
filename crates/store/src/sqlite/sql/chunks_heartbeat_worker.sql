-- ?1 worker, ?2 now
UPDATE worker SET last_seen_at = ?2 WHERE id = ?1
