-- The chunks to claim, in claim order: at most its limit of each queue, and ?2 in all. Each queue's
-- share is read from the head of the claim index, so that the cost does not grow with the queue.
-- ?1 [[queue, limit], …], ?2 total
SELECT c.id, c.fence, c.queue_id, c.chunk_key, c.key, c.effective_date, c.attempt, c.lost,
       j.job_id, j.job_type, j.dataset, j.owner, j.params, j.created_at
FROM json_each(?1) AS want
CROSS JOIN queue AS q ON q.id = want.value ->> 0 AND q.paused = 0
CROSS JOIN json_each((
    SELECT json_group_array(head.id)
    FROM (SELECT h.id
          FROM job_chunk AS h INDEXED BY chunk_claim
          CROSS JOIN job AS hj ON hj.id = h.job_id
          WHERE h.queue_id = want.value ->> 0 AND h.state = 'QUEUED' AND h.waits_for = 0
            AND hj.status NOT IN ('FAILED', 'CANCELLED')
          ORDER BY h.priority DESC, h.turn, h.id
          LIMIT ?2) AS head
)) AS pick
CROSS JOIN job_chunk AS c ON c.id = pick.value
CROSS JOIN job AS j ON j.id = c.job_id
WHERE pick.key < want.value ->> 1
ORDER BY c.priority DESC, c.turn, c.id
LIMIT ?2
