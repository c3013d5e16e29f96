-- ?1 chunk, ?2 fence, ?3 now
SELECT EXISTS (
    SELECT 1 FROM job_chunk AS c JOIN job AS j ON j.id = c.job_id
    WHERE c.id = ?1 AND c.fence = ?2 AND c.state = 'RUNNING' AND c.lease_until > ?3
      AND j.status <> 'CANCELLED'
)
