-- What is known of an identity, whether the caller still owns its chunk, whether the writer lives, and which dataset
-- owns the base path.
SELECT EXISTS (SELECT FROM outhaul.job_chunk c WHERE c.id = $1 AND c.fence = $2 AND c.state = 'RUNNING') AS held,
       k.id, k.generation, k.path, k.rows, k.bytes, k.sha256, k.etag, k.format, k.definition,
       k.last_generated_at, k.claimed_at, k.job_id, k.writer_chunk, k.writer_fence, k.upload_path, k.upload_id,
       EXISTS (SELECT FROM outhaul.job_chunk w
               WHERE w.id = k.writer_chunk AND w.fence = k.writer_fence AND w.state = 'RUNNING') AS writer_alive,
       (SELECT b.dataset FROM outhaul.base_path b WHERE b.path = $8) AS base_path_owner
FROM (VALUES (1)) AS one
LEFT JOIN outhaul.file_cache k
  ON k.dataset = $3 AND k.scope = $4 AND k.key = $5 AND k.effective_date = $6 AND k.variant = $7
