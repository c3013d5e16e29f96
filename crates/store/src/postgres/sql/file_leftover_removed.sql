UPDATE outhaul.file_cache
SET writer_chunk = NULL, writer_fence = NULL, upload_path = NULL, upload_id = NULL
WHERE id = $1 AND writer_chunk = $2 AND writer_fence = $3
