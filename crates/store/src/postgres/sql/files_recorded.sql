SELECT k.key, k.effective_date, k.path, k.rows, k.bytes, k.sha256, k.etag, k.format, k.definition,
       k.generation, k.last_generated_at, k.claimed_at, k.job_id
FROM unnest($4::text[], $5::date[]) AS w (key, effective_date)
JOIN outhaul.file_cache k
  ON k.dataset = $1 AND k.scope = $2 AND k.variant = $3 AND k.key = w.key AND k.effective_date = w.effective_date
WHERE k.generation > 0
