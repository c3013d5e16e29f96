-- The oldest that match, by job. Only a look: each job's own guarded transaction decides. A letter is a
-- chunk under the fence it died with: one that was redriven meanwhile and died again is another letter.
SELECT d.job_id, array_agg(d.id ORDER BY d.id) AS chunks, array_agg(d.fence ORDER BY d.id) AS fences
FROM (
    SELECT c.id, c.fence, c.job_id
    FROM outhaul.job_chunk c
    JOIN outhaul.job j ON j.id = c.job_id
    WHERE c.state = 'DEAD' AND j.status IN ('FAILED', 'IN_PROGRESS') AND j.pruned_at IS NULL
      AND ($1::text IS NULL OR j.job_id = $1)
      AND ($2::text IS NULL OR j.job_type = $2)
      AND ($3::text IS NULL OR j.dataset = $3)
      AND ($4::text IS NULL
           OR position(lower($4) IN lower(concat_ws(E'\n', COALESCE(c.error_detail, c.error_message), c.step, j.job_id, c.chunk_key))) > 0)
      AND ($5::timestamptz IS NULL OR c.completed_at >= $5)
      AND ($6::timestamptz IS NULL OR c.completed_at < $6)
    ORDER BY c.completed_at, c.id
    LIMIT $7
) d
GROUP BY d.job_id
ORDER BY min(d.id)
