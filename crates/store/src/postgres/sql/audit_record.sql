INSERT INTO outhaul.audit (actor, act, job_id, detail)
SELECT actor, act, job_id, detail
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS e (actor, act, job_id, detail)
