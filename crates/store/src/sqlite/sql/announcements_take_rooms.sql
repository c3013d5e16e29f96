-- How many are announced of each queue that may be announced; the stale ones are deleted before.
-- ?1 [queue, …], ?2 now
SELECT q.id, (SELECT count(*) FROM announcement AS a WHERE a.queue_id = q.id AND a.until > ?2) AS announced
FROM queue AS q
WHERE q.id IN (SELECT value FROM json_each(?1)) AND q.paused = 0
