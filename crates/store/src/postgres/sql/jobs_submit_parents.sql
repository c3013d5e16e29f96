INSERT INTO outhaul.job_parent (child_id, parent_id)
SELECT t.child_id, t.parent_id
FROM unnest($1::bigint[], $2::bigint[]) AS t (child_id, parent_id)
