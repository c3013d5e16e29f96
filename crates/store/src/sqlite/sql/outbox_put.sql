-- ?1 message id, ?2 body, ?3 now
INSERT INTO outbox (message_id, body, created_at) VALUES (?1, ?2, ?3) ON CONFLICT (message_id) DO NOTHING
