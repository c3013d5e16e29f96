-- A trigger is to ask for something else: arrivals that mean nothing to it go, and what was due and not yet
-- submitted never will be, for its parents stand in the order of what was asked for.
WITH rule AS MATERIALIZED (
    SELECT r.id, r.match_label
    FROM outhaul.trigger_rule r
    WHERE r.name = $1 AND (r.origin = 'api' OR $4 = 'config')
      AND (r.after_terms, r.match_label) IS DISTINCT FROM ($2::text[], $3::text)
), gone AS (
    DELETE FROM outhaul.trigger_arrival a
    USING rule r
    WHERE a.trigger_id = r.id AND (r.match_label IS DISTINCT FROM $3 OR a.term <> ALL ($2::text[]))
)
UPDATE outhaul.trigger_fire f
SET state = 'refused', detail = $5, at = clock_timestamp()
FROM rule r
WHERE f.trigger_id = r.id AND f.state = 'due'
