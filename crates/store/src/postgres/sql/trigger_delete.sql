WITH found AS MATERIALIZED (
    SELECT id, origin FROM outhaul.trigger_rule WHERE name = $1 FOR UPDATE
), gone AS (
    DELETE FROM outhaul.trigger_rule r WHERE r.id = ANY (ARRAY(SELECT id FROM found WHERE origin = 'api'))
)
SELECT origin FROM found
