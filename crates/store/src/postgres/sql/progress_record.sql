-- By the chunks' keys: the text added to the state keeps the index over running chunks out of it.
-- In the order of their keys, as every statement that writes several rows of one table.
INSERT INTO outhaul.chunk_progress (chunk_id, job_id, rows, bytes, fraction)
SELECT t.id, c.job_id, t.rows, t.bytes, t.fraction
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::double precision[])
     AS t (id, fence, rows, bytes, fraction)
CROSS JOIN LATERAL (
    SELECT c.job_id
    FROM outhaul.job_chunk c
    WHERE c.id = t.id AND c.fence = t.fence AND c.state || '' = 'RUNNING'
    OFFSET 0
) c
ORDER BY t.id
ON CONFLICT (chunk_id) DO UPDATE
SET rows = GREATEST(chunk_progress.rows, excluded.rows), bytes = GREATEST(chunk_progress.bytes, excluded.bytes),
    fraction = GREATEST(chunk_progress.fraction, excluded.fraction),
    reports = chunk_progress.reports + 1, updated_at = clock_timestamp()
