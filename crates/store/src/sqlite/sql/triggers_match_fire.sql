-- A set that has fired does not fire again.
INSERT INTO trigger_fire (trigger_id, value, parents, at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO NOTHING
