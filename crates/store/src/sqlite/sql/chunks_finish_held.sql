-- Which finishes still hold: the lease does, and who generated a file is still its one writer.
-- ?1 [{chunk, fence, generated, identity: null | {dataset, scope, key, effective_date, variant}}, …]
SELECT finish.key AS at, j.job_id, f.id AS file_id, f.generation
FROM json_each(?1) AS finish
CROSS JOIN job_chunk AS c ON c.id = finish.value ->> 'chunk'
CROSS JOIN job AS j ON j.id = c.job_id
LEFT JOIN file_cache AS f
       ON f.dataset = finish.value ->> '$.identity.dataset'
      AND f.scope = finish.value ->> '$.identity.scope'
      AND f.key = finish.value ->> '$.identity.key'
      AND f.effective_date = finish.value ->> '$.identity.effective_date'
      AND f.variant = finish.value ->> '$.identity.variant'
WHERE c.fence = finish.value ->> 'fence' AND c.state = 'RUNNING'
  AND (finish.value ->> 'identity' IS NULL
       OR (f.id IS NOT NULL
           AND (NOT finish.value ->> 'generated' OR (f.writer_chunk = c.id AND f.writer_fence = c.fence))))
