-- ?1 chunk, ?2 fence, ?3 name, ?4 result, ?5 now
INSERT INTO step (chunk_id, name, fence, result, completed_at)
SELECT c.id, ?3, c.fence, ?4, ?5
FROM job_chunk AS c
WHERE c.id = ?1 AND c.fence = ?2 AND c.state = 'RUNNING'
ON CONFLICT (chunk_id, name) DO NOTHING
