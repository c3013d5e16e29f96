-- Arrivals that no longer mean anything: terms that are not asked for, values of another label.
-- ?1 trigger, ?2 [term, …], ?3 whether the label is another
DELETE FROM trigger_arrival
WHERE trigger_id = ?1 AND (?3 OR term NOT IN (SELECT value FROM json_each(?2)))
