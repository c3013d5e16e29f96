-- ?1 chunk, ?2 now
UPDATE job SET version = version + 1, updated_at = ?2 WHERE id = (SELECT c.job_id FROM job_chunk AS c WHERE c.id = ?1)
