SELECT k.id, k.writer_chunk, k.writer_fence, k.upload_path, k.upload_id
FROM file_cache k
WHERE k.writer_chunk IS NOT NULL
  AND NOT EXISTS (SELECT FROM job_chunk w
                  WHERE w.id = k.writer_chunk AND w.fence = k.writer_fence AND w.state = 'RUNNING')
ORDER BY k.id
LIMIT $1
