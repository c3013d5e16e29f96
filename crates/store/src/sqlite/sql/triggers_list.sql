-- ?1 one name; or null for all, without what they submit, which may be large
SELECT id, name, after_terms, match_label, within_micros, iif(?1 IS NULL, 'null', job) AS job, produces, origin, owner,
       since, created_at, updated_at
FROM trigger_rule WHERE ?1 IS NULL OR name = ?1 ORDER BY name
