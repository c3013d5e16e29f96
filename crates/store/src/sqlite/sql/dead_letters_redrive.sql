-- The oldest that match. Only a look: each job's own transaction decides. Chunks of CANCELLED jobs stay
-- as they are, and must not stand in the way of others.
-- ?1 job id, ?2 job type, ?3 dataset, ?4 text, ?5 at or after, ?6 before, ?7 limit
SELECT c.id, c.fence, c.job_id
FROM job_chunk AS c INDEXED BY chunk_dead
CROSS JOIN job AS j ON j.id = c.job_id
WHERE c.state = 'DEAD' AND j.pruned_at IS NULL
  AND j.status IN ('FAILED', 'IN_PROGRESS')
  AND (?1 IS NULL OR j.job_id = ?1)
  AND (?2 IS NULL OR j.job_type = ?2)
  AND (?3 IS NULL OR j.dataset = ?3)
  AND (?4 IS NULL OR instr(lower(coalesce(c.error_detail, c.error_message)), lower(?4)) OR instr(lower(c.step), lower(?4))
       OR instr(lower(j.job_id), lower(?4)) OR instr(lower(c.chunk_key), lower(?4)))
  AND c.completed_at >= coalesce(?5, -9223372036854775808)
  AND c.completed_at < coalesce(?6, 9223372036854775807)
ORDER BY c.completed_at, c.id
LIMIT ?7
