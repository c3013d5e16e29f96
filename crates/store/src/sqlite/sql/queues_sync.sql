-- ?1 [[name, max_concurrent], …]; `WHERE true` tells ON CONFLICT from a join's ON
INSERT INTO queue (name, max_concurrent)
SELECT value ->> 0, value ->> 1 FROM json_each(?1) WHERE true
ON CONFLICT (name) DO UPDATE SET max_concurrent = excluded.max_concurrent
