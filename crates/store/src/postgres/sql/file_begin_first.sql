INSERT INTO file_cache (dataset, scope, key, effective_date, variant, writer_chunk, writer_fence)
VALUES ($3, $4, $5, $6, $7, $1, $2)
ON CONFLICT DO NOTHING
