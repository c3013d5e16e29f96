-- The first writer of an identity. A base path without an owner becomes the dataset's; below the base path of another
-- dataset nothing is written. A writer that loses the race for the base path writes nothing either, and reads again.
WITH taken AS (
    INSERT INTO outhaul.base_path (path, dataset)
    SELECT $8::text, $3::text
    WHERE NOT EXISTS (SELECT FROM outhaul.base_path b WHERE b.path = $8)
    ON CONFLICT DO NOTHING
    RETURNING path
)
INSERT INTO outhaul.file_cache (dataset, scope, key, effective_date, variant, writer_chunk, writer_fence)
SELECT $3, $4, $5, $6, $7, $1, $2
WHERE EXISTS (SELECT FROM taken)
   OR EXISTS (SELECT FROM outhaul.base_path b WHERE b.path = $8 AND b.dataset = $3)
ON CONFLICT DO NOTHING
