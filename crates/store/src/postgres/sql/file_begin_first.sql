-- The first writer of an identity. A base path that is nobody's becomes the dataset's; below another dataset's
-- nothing is written. Whoever loses a race for the base path writes nothing either, and looks again.
WITH taken AS (
    INSERT INTO base_path (path, dataset)
    SELECT $8::text, $3::text
    WHERE NOT EXISTS (SELECT FROM base_path b WHERE b.path = $8)
    ON CONFLICT DO NOTHING
    RETURNING path
)
INSERT INTO file_cache (dataset, scope, key, effective_date, variant, writer_chunk, writer_fence)
SELECT $3, $4, $5, $6, $7, $1, $2
WHERE EXISTS (SELECT FROM taken)
   OR EXISTS (SELECT FROM base_path b WHERE b.path = $8 AND b.dataset = $3)
ON CONFLICT DO NOTHING
