SELECT c.id, c.chunk_key, c.key, c.effective_date,
       f.path, f.rows, f.bytes, f.sha256, f.etag, f.format, f.reused, f.reason, f.generated_at, f.generation,
       k.generation = f.generation AS current, k.job_id AS current_job
FROM chunk_file f
JOIN job_chunk c ON c.id = f.chunk_id
JOIN job j ON j.id = c.job_id
LEFT JOIN file_cache k ON k.id = f.file_id
WHERE f.chunk_id = $2 AND j.job_id = $1 AND j.pruned_at IS NULL
