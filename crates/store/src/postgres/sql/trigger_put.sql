-- Stores a trigger; no row comes back if one of the configuration stands in the way of the API.
INSERT INTO outhaul.trigger_rule AS r (name, after_terms, match_label, within_micros, job, produces, origin, owner)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (name) DO UPDATE
SET after_terms = EXCLUDED.after_terms, match_label = EXCLUDED.match_label,
    within_micros = EXCLUDED.within_micros, job = EXCLUDED.job, produces = EXCLUDED.produces,
    origin = EXCLUDED.origin, owner = EXCLUDED.owner,
    since = CASE WHEN (r.after_terms, r.match_label) IS NOT DISTINCT FROM (EXCLUDED.after_terms, EXCLUDED.match_label)
                 THEN r.since ELSE clock_timestamp() END,
    updated_at = CASE WHEN (r.after_terms, r.match_label, r.within_micros, r.job, r.produces, r.origin, r.owner)
                           IS NOT DISTINCT FROM
                           (EXCLUDED.after_terms, EXCLUDED.match_label, EXCLUDED.within_micros, EXCLUDED.job,
                            EXCLUDED.produces, EXCLUDED.origin, EXCLUDED.owner)
                      THEN r.updated_at ELSE clock_timestamp() END
WHERE r.origin = 'api' OR EXCLUDED.origin = 'config'
RETURNING xmax = 0 AS created
