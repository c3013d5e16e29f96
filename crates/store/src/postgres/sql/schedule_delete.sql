WITH found AS MATERIALIZED (
    SELECT id, origin FROM outhaul.schedule WHERE name = $1 FOR UPDATE
), gone AS (
    DELETE FROM outhaul.schedule s WHERE s.id = ANY (ARRAY(SELECT id FROM found WHERE origin = 'api'))
)
SELECT origin FROM found
