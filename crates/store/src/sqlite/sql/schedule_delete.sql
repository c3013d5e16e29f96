-- Its slots go with it.
DELETE FROM schedule WHERE name = ?1 AND origin = 'api'
