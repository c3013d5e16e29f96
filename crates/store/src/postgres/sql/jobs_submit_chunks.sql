-- An eligible chunk is inserted QUEUED with its turn; one whose time has not come, or whose job waits for
-- others, waits as CREATED.
INSERT INTO outhaul.job_chunk (job_id, position, chunk_key, queue_id, key, effective_date, priority, state, turn, run_at)
SELECT t.job_id, t.position, t.chunk_key, t.queue_id, t.key, t.effective_date, t.priority,
       CASE WHEN t.waits OR t.run_at > now() THEN 'CREATED' ELSE 'QUEUED' END,
       CASE WHEN t.waits OR t.run_at > now() THEN NULL ELSE now() + t.position * $9::interval END,
       CASE WHEN t.run_at > now() THEN t.run_at END
FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::integer[], $5::text[], $6::date[], $7::smallint[],
            $8::timestamptz[], $10::boolean[])
     AS t (job_id, position, chunk_key, queue_id, key, effective_date, priority, run_at, waits)
ORDER BY t.job_id, t.position
