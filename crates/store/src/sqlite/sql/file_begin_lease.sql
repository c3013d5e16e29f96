-- ?1 chunk, ?2 fence
SELECT EXISTS (SELECT 1 FROM job_chunk WHERE id = ?1 AND fence = ?2 AND state = 'RUNNING')
