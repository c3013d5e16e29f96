INSERT INTO outhaul.schedule_slot (schedule_id, slot, outcome, job_id, detail)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
RETURNING slot, outcome, job_id, detail, at
