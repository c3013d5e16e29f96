-- ?1 [trigger, …]
SELECT * FROM trigger_rule WHERE id IN (SELECT value FROM json_each(?1))
