-- The chunks to announce, in claim order: at most its room of each queue, and ?2 in all. Each queue's share
-- is read from the head of the claim index, past what is announced, which its window bounds.
-- ?1 [[queue, room], …], ?2 limit, ?3 now, ?4 the largest room, or the limit if that is less
SELECT c.id, c.fence, c.queue_id, c.chunk_key, c.key, c.effective_date, j.job_id
FROM json_each(?1) AS want
CROSS JOIN json_each((
    SELECT json_group_array(head.id)
    FROM (SELECT h.id
          FROM job_chunk AS h INDEXED BY chunk_claim
          CROSS JOIN job AS hj ON hj.id = h.job_id
          WHERE h.queue_id = want.value ->> 0 AND h.state = 'QUEUED'
            AND hj.status IN ('SUBMITTED', 'IN_PROGRESS')
            AND NOT EXISTS (SELECT 1 FROM announcement AS a
                            WHERE a.queue_id = h.queue_id AND a.chunk_id = h.id AND a.until > ?3)
          ORDER BY h.priority DESC, h.turn, h.id
          LIMIT ?4) AS head
)) AS pick
CROSS JOIN job_chunk AS c ON c.id = pick.value
CROSS JOIN job AS j ON j.id = c.job_id
WHERE pick.key < want.value ->> 1
ORDER BY c.priority DESC, c.turn, c.id
LIMIT ?2
