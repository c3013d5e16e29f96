-- ?1 [name, …]
SELECT id, name FROM queue WHERE name IN (SELECT value FROM json_each(?1))
