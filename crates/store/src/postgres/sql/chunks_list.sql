SELECT c.id, c.chunk_key, c.key, c.effective_date, c.state, c.error_message, c.started_at, c.completed_at,
       f.path, f.rows, f.bytes, f.sha256, f.etag, f.format, f.reused, f.reason, f.generated_at, f.generation,
       p.rows AS progress_rows, p.bytes AS progress_bytes, p.fraction AS progress_fraction
FROM outhaul.job j
JOIN outhaul.job_chunk c ON c.job_id = j.id
LEFT JOIN outhaul.chunk_file f ON f.chunk_id = c.id
LEFT JOIN outhaul.chunk_progress p ON p.chunk_id = c.id AND c.state = 'RUNNING'
WHERE j.job_id = $1 AND j.pruned_at IS NULL
  AND ($2::text[] IS NULL OR c.state = ANY ($2))
  AND ($3::text IS NULL OR c.chunk_key > $3)
ORDER BY c.chunk_key
LIMIT $4
