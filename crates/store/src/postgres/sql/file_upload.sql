UPDATE outhaul.file_cache
SET upload_path = $8, upload_id = $9
WHERE dataset = $3 AND scope = $4 AND key = $5 AND effective_date = $6 AND variant = $7
  AND writer_chunk = $1 AND writer_fence = $2
  AND EXISTS (SELECT FROM outhaul.job_chunk c WHERE c.id = $1 AND c.fence = $2 AND c.state = 'RUNNING')
