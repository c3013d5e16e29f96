-- A row that is there is of the same fence: the stale ones are deleted before.
-- ?1 [[queue, chunk, fence], …], ?2 until
INSERT INTO announcement (queue_id, chunk_id, fence, until)
SELECT taken.value ->> 0, taken.value ->> 1, taken.value ->> 2, ?2
FROM json_each(?1) AS taken
WHERE true
ON CONFLICT (queue_id, chunk_id) DO UPDATE
SET until = excluded.until, standing = 'held',
    times = CASE standing WHEN 'deferred' THEN times ELSE min(times + 1, 5) END
