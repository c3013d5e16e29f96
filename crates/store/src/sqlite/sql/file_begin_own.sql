-- ?1 file, ?2 chunk, ?3 fence
UPDATE file_cache
SET writer_chunk = ?2, writer_fence = ?3, upload_path = NULL, upload_id = NULL
WHERE id = ?1
