-- Looked at: not again for a while. ?1 [job, …], ?2 now
UPDATE job SET checked_at = ?2 WHERE id IN (SELECT value FROM json_each(?1))
