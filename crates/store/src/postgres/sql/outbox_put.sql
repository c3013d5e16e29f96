INSERT INTO outhaul.outbox (message_id, body)
SELECT i.message_id, i.body FROM unnest($1::text[], $2::text[]) AS i (message_id, body) ORDER BY i.message_id
ON CONFLICT (message_id) DO NOTHING
