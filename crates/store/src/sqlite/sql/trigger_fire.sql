-- ?1 firing, ?2 state, ?3 job, ?4 detail, ?5 now
UPDATE trigger_fire SET state = ?2, job_id = ?3, detail = ?4, at = ?5 WHERE id = ?1 AND state = 'due'
RETURNING *
