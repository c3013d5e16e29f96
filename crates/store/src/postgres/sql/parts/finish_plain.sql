-- Success of chunks without files. Every chunk is looked up by its key, in ascending order, whatever the planner believes
-- of the table; what the later parts need is carried along instead of joined again.
WITH given AS MATERIALIZED (
    -- The same lease may stand in a batch twice, and a stale lease of the same chunk beside it.
    SELECT DISTINCT ON (i.id, i.fence) i.id, i.fence, i.result
    FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS i (id, fence, result)
), accepted AS MATERIALIZED (
    SELECT g.id, g.fence, c.job_id, c.started_at, false AS reused, 0::bigint AS rows, 0::bigint AS bytes, g.result
    FROM given g
    CROSS JOIN LATERAL (
        SELECT c.job_id, c.started_at
        FROM outhaul.job_chunk c
        WHERE c.id = g.id AND c.fence = g.fence AND c.state || '' = 'RUNNING'
        FOR UPDATE
    ) c
