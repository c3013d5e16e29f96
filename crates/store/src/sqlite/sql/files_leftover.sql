-- ?1 limit
SELECT f.id, f.writer_chunk, f.writer_fence, f.upload_path, f.upload_id
FROM file_cache AS f
WHERE f.writer_chunk IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM job_chunk AS c
                  WHERE c.id = f.writer_chunk AND c.fence = f.writer_fence AND c.state = 'RUNNING')
ORDER BY f.id
LIMIT ?1
