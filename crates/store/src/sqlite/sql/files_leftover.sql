-- ?1 limit
SELECT f.id, f.dataset, f.scope, f.key, f.effective_date, f.variant, f.path, f.rows, f.bytes, f.sha256,
       f.etag, f.format, f.definition, f.generation, f.last_generated_at, f.claimed_at, f.job_id,
       f.writer_chunk, f.writer_fence, f.upload_path, f.upload_id
FROM file_cache AS f
WHERE f.writer_chunk IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM job_chunk AS c
                  WHERE c.id = f.writer_chunk AND c.fence = f.writer_fence AND c.state = 'RUNNING')
ORDER BY f.id
LIMIT ?1
