-- After a bad end there is nothing left to wait for. ?1 child, ?2 [parent, …], ?3 whether it ended badly
UPDATE job_parent
SET settled = 1
WHERE child_id = ?1 AND settled = 0 AND (?3 OR parent_id IN (SELECT value FROM json_each(?2)))
