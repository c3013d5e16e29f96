SELECT c.id, c.chunk_key, c.key, c.effective_date,
       f.path, f.rows, f.bytes, f.sha256, f.etag, f.format, f.reused, f.reason, f.generated_at, f.generation,
       k.generation = f.generation AS current, k.job_id AS current_job
FROM job j
JOIN job_chunk c ON c.job_id = j.id
JOIN chunk_file f ON f.chunk_id = c.id
LEFT JOIN file_cache k ON k.id = f.file_id
WHERE j.job_id = $1 AND j.pruned_at IS NULL
  AND ($2::text IS NULL OR c.chunk_key > $2)
ORDER BY c.chunk_key
LIMIT $3
