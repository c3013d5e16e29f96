-- Which finishes still hold: the lease does, and who generated a file is still its one writer.
-- ?1 [{chunk, fence, identity: null | {dataset, scope, key, effective_date, variant}, reused: null | path}, …]
SELECT finish.key AS at, j.job_id, c.started_at,
       coalesce(made.id, kept.id) AS file_id, made.generation
FROM json_each(?1) AS finish
CROSS JOIN job_chunk AS c ON c.id = finish.value ->> 'chunk'
CROSS JOIN job AS j ON j.id = c.job_id
LEFT JOIN file_cache AS made
       ON made.dataset = finish.value ->> '$.identity.dataset'
      AND made.scope = finish.value ->> '$.identity.scope'
      AND made.key = finish.value ->> '$.identity.key'
      AND made.effective_date = finish.value ->> '$.identity.effective_date'
      AND made.variant = finish.value ->> '$.identity.variant'
      AND made.writer_chunk = c.id AND made.writer_fence = c.fence
LEFT JOIN file_cache AS kept
       ON kept.path = finish.value ->> 'reused' AND kept.dataset = j.dataset
      AND kept.key = c.key AND kept.effective_date = c.effective_date
WHERE c.fence = finish.value ->> 'fence' AND c.state = 'RUNNING'
  AND (finish.value ->> 'identity' IS NULL OR made.id IS NOT NULL)
