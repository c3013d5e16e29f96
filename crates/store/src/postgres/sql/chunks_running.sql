SELECT a.id, a.fence
FROM unnest($1::bigint[], $2::bigint[]) AS a (id, fence)
CROSS JOIN LATERAL (
    SELECT FROM outhaul.job_chunk c
    WHERE c.id = a.id AND c.fence = a.fence AND c.state || '' = 'RUNNING'
    OFFSET 0
) c
