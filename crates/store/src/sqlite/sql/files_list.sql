-- ?1 job id, ?2 after this chunk key, ?3 limit
SELECT c.id, c.chunk_key, c.key, c.effective_date,
       f.path, f.rows, f.bytes, f.sha256, f.etag, f.format, f.reused, f.reason, f.generated_at, f.generation,
       coalesce(now.generation = f.generation, 0) AS current, now.job_id AS current_job
FROM job_chunk AS c
CROSS JOIN chunk_file AS f ON f.chunk_id = c.id
LEFT JOIN file_cache AS now ON now.id = f.file_id
WHERE c.job_id = (SELECT j.id FROM job AS j WHERE j.job_id = ?1 AND j.pruned_at IS NULL) AND c.chunk_key > coalesce(?2, '')
ORDER BY c.chunk_key
LIMIT ?3
