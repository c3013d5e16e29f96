-- `current`: the storage holds the same bytes, of this generation or a later one; path and ETag are
-- those of that generation.
SELECT c.id, c.chunk_key, c.key, c.effective_date,
       CASE WHEN same.bytes THEN k.path ELSE f.path END AS path, f.rows, f.bytes, f.sha256,
       CASE WHEN same.bytes THEN k.etag ELSE f.etag END AS etag, f.format, f.reused, f.reason, f.generated_at, f.generation,
       same.bytes AS current, k.job_id AS current_job
FROM outhaul.chunk_file f
JOIN outhaul.job_chunk c ON c.id = f.chunk_id
JOIN outhaul.job j ON j.id = c.job_id
LEFT JOIN outhaul.file_cache k ON k.id = f.file_id
CROSS JOIN LATERAL (SELECT COALESCE(k.sha256 = f.sha256 AND k.bytes = f.bytes, false) AS bytes) AS same
WHERE f.chunk_id = $2 AND j.job_id = $1 AND j.pruned_at IS NULL
