SELECT coalesce(sum(total - done - failed - cancelled), 0)
FROM job
WHERE owner = ?1 AND status IN ('SUBMITTED', 'IN_PROGRESS')
