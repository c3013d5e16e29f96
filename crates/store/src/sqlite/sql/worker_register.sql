-- ?1 host, ?2 roles, ?3 concurrency, ?4 now
INSERT INTO worker (host, roles, concurrency, started_at, last_seen_at) VALUES (?1, ?2, ?3, ?4, ?4)
RETURNING id
