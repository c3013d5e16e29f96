-- ?1–?5 the identity, ?6 chunk, ?7 fence, ?8 path, ?9 upload id
UPDATE file_cache
SET upload_path = ?8, upload_id = ?9
WHERE dataset = ?1 AND scope = ?2 AND key = ?3 AND effective_date = ?4 AND variant = ?5
  AND writer_chunk = ?6 AND writer_fence = ?7
  AND EXISTS (SELECT 1 FROM job_chunk AS c WHERE c.id = ?6 AND c.fence = ?7 AND c.state = 'RUNNING')
