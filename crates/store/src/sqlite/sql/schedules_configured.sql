-- ?1 [name, …] of the configuration
DELETE FROM schedule WHERE origin = 'config' AND name NOT IN (SELECT value FROM json_each(?1))
