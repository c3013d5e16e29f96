-- ?1 limit
DELETE FROM chunk_history
WHERE id IN (SELECT h.id
             FROM job AS j CROSS JOIN chunk_history AS h ON h.job_id = j.id
             WHERE j.pruned_at IS NOT NULL
             LIMIT ?1)
