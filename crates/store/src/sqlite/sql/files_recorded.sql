-- ?1 dataset, ?2 scope, ?3 variant, ?4 [[key, date], …]
SELECT f.dataset, f.scope, f.key, f.effective_date, f.variant, f.path, f.rows, f.bytes, f.sha256, f.etag,
       f.format, f.definition, f.generation, f.last_generated_at, f.claimed_at, f.job_id
FROM json_each(?4) AS wanted
CROSS JOIN file_cache AS f
        ON f.dataset = ?1 AND f.scope = ?2 AND f.key = wanted.value ->> 0
       AND f.effective_date = wanted.value ->> 1 AND f.variant = ?3
WHERE f.generation > 0
