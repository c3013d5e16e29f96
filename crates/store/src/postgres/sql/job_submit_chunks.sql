-- An eligible chunk is inserted QUEUED with its turn; one whose time has not come waits as CREATED.
INSERT INTO job_chunk (job_id, position, chunk_key, queue_id, key, effective_date, priority, state, turn, run_at)
SELECT $1, t.position, t.chunk_key, t.queue_id, t.key, t.effective_date, $7,
       CASE WHEN $8 > now() THEN 'CREATED' ELSE 'QUEUED' END,
       CASE WHEN $8 > now() THEN NULL ELSE now() + t.position * $9::interval END,
       CASE WHEN $8 > now() THEN $8 END
FROM unnest($2::integer[], $3::text[], $4::integer[], $5::text[], $6::date[])
     AS t (position, chunk_key, queue_id, key, effective_date)
ORDER BY t.position
