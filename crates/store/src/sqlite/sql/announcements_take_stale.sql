-- Announcements that a claim, a hold or an end has overtaken. What only ran out stays: it tells how often
-- the chunk was announced. ?1 [queue, …]
DELETE FROM announcement
WHERE queue_id IN (SELECT value FROM json_each(?1))
  AND NOT EXISTS (SELECT 1 FROM job_chunk AS c
                  WHERE c.id = announcement.chunk_id AND c.state = 'QUEUED' AND c.fence = announcement.fence)
