SELECT f.id AS fire_id, f.value, f.parents, f.state, f.job_id AS fired_job_id, f.detail, f.at,
       r.id, r.name, r.after_terms, r.match_label, r.within_micros, r.job, r.produces, r.origin, r.owner, r.created_at,
       r.updated_at
FROM outhaul.trigger_fire f
JOIN outhaul.trigger_rule r ON r.id = f.trigger_id
WHERE f.state = 'due'
ORDER BY f.id
LIMIT $1
