INSERT INTO schedule_slot (schedule_id, slot, outcome, job_id, detail, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
