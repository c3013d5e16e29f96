-- ?1 job
SELECT status FROM job WHERE id = ?1 AND pruned_at IS NULL
