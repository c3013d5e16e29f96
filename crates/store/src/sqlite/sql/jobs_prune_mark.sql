-- ?1 completed before, ?2 limit, ?3 now
UPDATE job
SET pruned_at = ?3, idempotency_key = NULL
WHERE id IN (SELECT id FROM job
             WHERE completed_at < ?1 AND completed_at IS NOT NULL AND pruned_at IS NULL
               -- Kept for as long as another waits for it.
               AND NOT EXISTS (SELECT 1 FROM job_parent AS w WHERE w.parent_id = job.id AND w.settled = 0)
             ORDER BY completed_at
             LIMIT ?2)
