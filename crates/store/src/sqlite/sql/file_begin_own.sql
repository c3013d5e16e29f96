-- A predecessor's upload stays recorded until it is replaced or finished over, so that it can be
-- aborted even if this writer dies at once. ?1 file, ?2 chunk, ?3 fence
UPDATE file_cache SET writer_chunk = ?2, writer_fence = ?3 WHERE id = ?1
