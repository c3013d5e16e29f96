-- ?1 limit, ?2 now, ?3 taken until
UPDATE outbox
SET taken_until = ?3
WHERE id IN (SELECT o.id FROM outbox AS o WHERE coalesce(o.taken_until, 0) <= ?2 ORDER BY o.id LIMIT ?1)
RETURNING id, message_id, body
