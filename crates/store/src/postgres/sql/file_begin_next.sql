-- Takes over from the writer that was seen. A predecessor's upload stays recorded until it is
-- replaced or finished over, so that it can be aborted even if this writer dies at once.
UPDATE file_cache
SET writer_chunk = $1, writer_fence = $2
WHERE id = $3 AND generation = $4
  AND writer_chunk IS NOT DISTINCT FROM $5 AND writer_fence IS NOT DISTINCT FROM $6
