-- Frees keys whose job finished longer ago than the idempotency window; in the order of their rows, as
-- every statement that locks several jobs. Each key is looked up by itself, so that no statistics can turn
-- it into a walk over all keys.
WITH known AS MATERIALIZED (
    SELECT (SELECT j.id FROM outhaul.job j WHERE j.owner = k.owner AND j.idempotency_key = k.idempotency_key) AS id
    FROM unnest($1::text[], $2::text[]) AS k (owner, idempotency_key)
), locked AS MATERIALIZED (
    SELECT j.id
    FROM outhaul.job j
    WHERE j.id = ANY (ARRAY(SELECT id FROM known)) AND j.completed_at < now() - $3::interval
    ORDER BY j.id
    FOR UPDATE
)
UPDATE outhaul.job SET idempotency_key = NULL WHERE id = ANY (ARRAY(SELECT id FROM locked))
