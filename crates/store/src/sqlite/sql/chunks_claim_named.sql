-- The chunks that are named, with all that decides whether they may be claimed. ?1 [[job id, chunk key], …]
SELECT name.key AS at, c.state = 'QUEUED' AND j.status IN ('SUBMITTED', 'IN_PROGRESS') AS waits,
       q.paused, c.id, c.fence, c.queue_id, c.chunk_key, c.key, c.effective_date, c.attempt, c.lost,
       j.job_id, j.job_type, j.dataset, j.owner, j.params, j.created_at
FROM json_each(?1) AS name
CROSS JOIN job AS j ON j.job_id = name.value ->> 0
CROSS JOIN job_chunk AS c ON c.job_id = j.id AND c.chunk_key = name.value ->> 1
CROSS JOIN queue AS q ON q.id = c.queue_id
