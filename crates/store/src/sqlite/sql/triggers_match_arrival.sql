INSERT INTO trigger_arrival (trigger_id, value, term, job_id, completed_at, owner)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT DO NOTHING
