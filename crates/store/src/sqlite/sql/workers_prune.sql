-- ?1 last seen before
DELETE FROM worker WHERE last_seen_at < ?1
