-- The unique indexes decide between two first submissions; the loser finds no row here. Ordered by
-- key, so that two batches with the same keys wait for each other instead of deadlocking.
WITH given AS MATERIALIZED (
    SELECT t.*, t.identity::jsonb ->> 'department' AS department
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                $9::text[], $10::text[], $11::smallint[], $12::text[], $13::text[], $14::timestamptz[],
                $15::integer[], $16::integer[], $17::text[], $18::text[], $19::text[], $20::text[])
         WITH ORDINALITY
         AS t (job_id, job_type, dataset, owner, idempotency_key, request_hash, unique_key, request, params,
               on_failure, priority, labels, base_path, run_at, total, waits_for, on_parent_failure, identity,
               scope, made_by, place)
), stored AS (
    INSERT INTO outhaul.job (job_id, job_type, dataset, owner, idempotency_key, request_hash, unique_key, request, params,
                     on_failure, priority, labels, base_path, run_at, total, waits_for, on_parent_failure, identity,
                     department, scope)
    SELECT t.job_id, t.job_type, t.dataset, t.owner, t.idempotency_key, t.request_hash, t.unique_key,
           t.request::jsonb, t.params, t.on_failure, t.priority, t.labels::jsonb, t.base_path, t.run_at, t.total,
           t.waits_for, t.on_parent_failure, t.identity, t.department, t.scope
    FROM given t
    ORDER BY t.owner, t.idempotency_key NULLS FIRST, t.job_type, t.unique_key NULLS FIRST, t.place
    ON CONFLICT DO NOTHING
    RETURNING id, job_id, owner, identity
), audited AS (
    -- Where callers can be told apart, what they submit is on record for longer than the job.
    INSERT INTO outhaul.audit (actor, act, job_id, detail)
    SELECT s.owner, 'submit', s.job_id, t.made_by
    FROM stored s
    JOIN given t ON t.job_id = s.job_id
    WHERE s.identity IS NOT NULL
)
SELECT id, job_id FROM stored
