-- ?1 [[chunk key, queue, key, date], …] in their order, ?2 job, ?3 priority, ?4 now, ?5 fairness step,
-- ?6 run_at if it is still to come, ?7 whether the job waits for others
INSERT INTO job_chunk (job_id, position, chunk_key, queue_id, key, effective_date, state, priority, turn, run_at,
                       waits_for)
SELECT ?2, c.key, c.value ->> 0, c.value ->> 1, c.value ->> 2, c.value ->> 3,
       iif(?6 IS NULL AND NOT ?7, 'QUEUED', 'CREATED'), ?3, iif(?6 IS NULL AND NOT ?7, ?4 + c.key * ?5, NULL), ?6,
       iif(?7, 1, 0)
FROM json_each(?1) AS c
