-- Takes over from the writer that was seen. A predecessor's upload stays recorded until it is
-- replaced or finished over, so that it can be aborted even if this writer dies at once.
-- The base path is taken or refused as in file_begin_first.sql: the configuration may have moved the dataset.
WITH taken AS (
    INSERT INTO outhaul.base_path (path, dataset)
    SELECT $7::text, $8::text
    WHERE NOT EXISTS (SELECT FROM outhaul.base_path b WHERE b.path = $7)
    ON CONFLICT DO NOTHING
    RETURNING path
)
UPDATE outhaul.file_cache
SET writer_chunk = $1, writer_fence = $2
WHERE id = $3 AND generation = $4
  AND writer_chunk IS NOT DISTINCT FROM $5 AND writer_fence IS NOT DISTINCT FROM $6
  AND (EXISTS (SELECT FROM taken)
       OR EXISTS (SELECT FROM outhaul.base_path b WHERE b.path = $7 AND b.dataset = $8))
