SELECT c.id, c.fence
FROM unnest($1::bigint[], $2::bigint[]) AS a (id, fence)
JOIN job_chunk c ON c.id = a.id AND c.fence = a.fence
WHERE c.state = 'RUNNING'
