-- ?1 worker, ?2 queue, ?3 how many, ?4 now, ?5 lease until
UPDATE queue_slot
SET worker_id = ?1, lease_until = ?5
WHERE queue_id = ?2
  AND slot IN (SELECT s.slot FROM queue_slot AS s JOIN queue AS q ON q.id = s.queue_id
               WHERE s.queue_id = ?2 AND s.slot < q.max_concurrent
                 AND (s.worker_id IS NULL OR s.lease_until < ?4)
               ORDER BY s.slot
               LIMIT ?3)
RETURNING slot
