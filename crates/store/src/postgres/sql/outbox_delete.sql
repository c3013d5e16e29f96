WITH deleted AS MATERIALIZED (
    SELECT o.id FROM outhaul.outbox o WHERE o.id = ANY ($1::bigint[]) ORDER BY o.id FOR UPDATE
)
DELETE FROM outhaul.outbox o WHERE o.id = ANY (ARRAY(SELECT id FROM deleted))
