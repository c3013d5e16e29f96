-- ?1 job id, ?2 [state, …] or null, ?3 after this chunk key, ?4 limit
SELECT c.id, c.chunk_key, c.key, c.effective_date, c.state, c.error_message, c.started_at, c.completed_at,
       f.path, f.rows, f.bytes, f.sha256, f.etag, f.format, f.reused, f.reason, f.generated_at, f.generation,
       p.rows AS progress_rows, p.bytes AS progress_bytes, p.fraction AS progress_fraction
FROM job_chunk AS c
LEFT JOIN chunk_file AS f ON f.chunk_id = c.id
LEFT JOIN chunk_progress AS p ON p.chunk_id = c.id AND c.state = 'RUNNING'
WHERE c.job_id = (SELECT j.id FROM job AS j WHERE j.job_id = ?1 AND j.pruned_at IS NULL)
  AND c.chunk_key > coalesce(?3, '')
  AND (?2 IS NULL OR c.state IN (SELECT value FROM json_each(?2)))
ORDER BY c.chunk_key
LIMIT ?4
