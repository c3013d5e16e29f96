-- `current`: the storage holds the same bytes, of this generation or a later one; path and ETag are
-- those of that generation.
-- ?1 job id, ?2 chunk
SELECT c.id, c.chunk_key, c.key, c.effective_date,
       coalesce(same.path, f.path) AS path, f.rows, f.bytes, f.sha256,
       CASE WHEN same.id IS NULL THEN f.etag ELSE same.etag END AS etag, f.format, f.reused, f.reason, f.generated_at, f.generation,
       same.id IS NOT NULL AS current, latest.job_id AS current_job
FROM job_chunk AS c
CROSS JOIN chunk_file AS f ON f.chunk_id = c.id
LEFT JOIN file_cache AS latest ON latest.id = f.file_id
LEFT JOIN file_cache AS same ON same.id = f.file_id AND same.sha256 = f.sha256 AND same.bytes = f.bytes
WHERE c.id = ?2 AND c.job_id = (SELECT j.id FROM job AS j WHERE j.job_id = ?1 AND j.pruned_at IS NULL)
