-- Each message is handed to one relay at a time.
WITH due AS MATERIALIZED (
    SELECT o.id
    FROM outhaul.outbox o
    WHERE o.taken_until IS NULL OR o.taken_until <= clock_timestamp()
    ORDER BY o.id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE outhaul.outbox o
    SET taken_until = clock_timestamp() + $2::interval
    WHERE o.id = ANY (ARRAY(SELECT id FROM due))
    RETURNING o.id, o.message_id, o.body
)
SELECT id, message_id, body FROM taken ORDER BY id
