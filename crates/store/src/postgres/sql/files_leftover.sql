SELECT k.id, k.writer_chunk, k.writer_fence, k.upload_path, k.upload_id, k.generation, k.path, k.rows, k.bytes, k.sha256, k.etag, k.format,
       k.definition, k.last_generated_at, k.claimed_at, k.job_id
FROM outhaul.file_cache k
WHERE k.writer_chunk IS NOT NULL
  AND NOT EXISTS (SELECT FROM outhaul.job_chunk w
                  WHERE w.id = k.writer_chunk AND w.fence = k.writer_fence AND w.state = 'RUNNING')
ORDER BY k.id
LIMIT $1
