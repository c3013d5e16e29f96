-- One by its name; or all, without what they submit, which may be large.
SELECT id, name, after_terms, match_label, within_micros,
       CASE WHEN $1::text IS NULL THEN 'null' ELSE job END AS job,
       produces, origin, owner, created_at, updated_at
FROM outhaul.trigger_rule
WHERE $1::text IS NULL OR name = $1
ORDER BY name COLLATE "C"
