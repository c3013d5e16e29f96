UPDATE trigger_rule
SET after_terms = ?2, match_label = ?3, within_micros = ?4, job = ?5, produces = ?6, origin = ?7, owner = ?8,
    since = iif(after_terms = ?2 AND match_label IS ?3, since, ?9),
    updated_at = iif((after_terms, job, produces, origin, owner) = (?2, ?5, ?6, ?7, ?8) AND match_label IS ?3
                     AND within_micros IS ?4, updated_at, ?9)
WHERE name = ?1
