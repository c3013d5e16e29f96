-- Success of many chunks: chunks, then files, then jobs, each ascending; the jobs' rows last, so that
-- they are locked for as short as can be. A chunk that generated a file counts only if it is still
-- the writer of its identity.
WITH given AS MATERIALIZED (
    SELECT DISTINCT ON (i.id, i.fence) *
    FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[],
                $6::text[], $7::text[], $8::text[], $9::date[], $10::text[],
                $11::text[], $12::bigint[], $13::bigint[], $14::text[], $15::text[], $16::text[], $17::text[],
                $18::bigint[], $19::timestamptz[], $20::text[])
         AS i (id, fence, claimed_at, kind, reason,
               dataset, scope, key, effective_date, variant,
               path, rows, bytes, sha256, etag, format, definition,
               generation, generated_at, result)
), locked AS MATERIALIZED (
    SELECT c.id, c.fence, c.job_id, c.started_at
    FROM job_chunk c
    JOIN given g ON g.id = c.id AND g.fence = c.fence
    WHERE c.id = ANY ($1) AND c.state = 'RUNNING'
    ORDER BY c.id
    FOR UPDATE OF c
), input AS MATERIALIZED (
    -- One row per chunk: a stale lease of the same chunk may stand in the same batch.
    SELECT g.* FROM given g JOIN locked l ON l.id = g.id AND l.fence = g.fence
), written AS (
    UPDATE file_cache k
    SET generation = k.generation + 1, path = i.path, rows = i.rows, bytes = i.bytes, sha256 = i.sha256,
        etag = i.etag, format = i.format, definition = i.definition, claimed_at = i.claimed_at,
        last_generated_at = clock_timestamp(), job_id = (SELECT j.job_id FROM job j WHERE j.id = l.job_id),
        writer_chunk = NULL, writer_fence = NULL, upload_path = NULL, upload_id = NULL
    FROM input i
    JOIN locked l ON l.id = i.id
    WHERE i.kind = 'generated'
      AND k.dataset = i.dataset AND k.scope = i.scope AND k.key = i.key
      AND k.effective_date = i.effective_date AND k.variant = i.variant
      AND k.writer_chunk = i.id AND k.writer_fence = i.fence
    RETURNING i.id AS chunk_id, k.id AS file_id, k.generation, k.last_generated_at
), reused AS (
    SELECT i.id AS chunk_id, k.id AS file_id
    FROM input i
    JOIN locked l ON l.id = i.id
    JOIN file_cache k
      ON k.dataset = i.dataset AND k.scope = i.scope AND k.key = i.key
     AND k.effective_date = i.effective_date AND k.variant = i.variant
    WHERE i.kind = 'reused'
), recorded AS (
    INSERT INTO chunk_file (chunk_id, file_id, generation, rows, bytes, generated_at, reused, path, sha256,
                            etag, format, reason)
    SELECT i.id, COALESCE(w.file_id, r.file_id), COALESCE(w.generation, i.generation), i.rows, i.bytes,
           COALESCE(w.last_generated_at, i.generated_at), w.chunk_id IS NULL, i.path, i.sha256, i.etag,
           i.format, i.reason
    FROM input i
    LEFT JOIN written w ON w.chunk_id = i.id
    LEFT JOIN reused r ON r.chunk_id = i.id
    WHERE w.chunk_id IS NOT NULL OR r.chunk_id IS NOT NULL
    ON CONFLICT (chunk_id) DO NOTHING
    RETURNING chunk_id
), done AS (
    UPDATE job_chunk c
    SET state = 'SUCCESS', completed_at = clock_timestamp(), lease_until = NULL, returned = 0, lost = 0,
        error_message = NULL, step = NULL
    WHERE c.id = ANY (ARRAY(
              SELECT l.id
              FROM locked l
              JOIN input i ON i.id = l.id
              LEFT JOIN recorded r ON r.chunk_id = l.id
              WHERE i.kind = 'none' OR r.chunk_id IS NOT NULL))
    RETURNING c.id, c.job_id, c.fence, c.started_at
), settled AS (
    DELETE FROM chunk_progress p WHERE p.chunk_id = ANY (ARRAY(SELECT id FROM done))
), gained AS MATERIALIZED (
    SELECT d.job_id, count(*)::integer AS done,
           (count(*) FILTER (WHERE i.kind = 'reused'))::integer AS reused,
           COALESCE(sum(i.rows), 0)::bigint AS rows, COALESCE(sum(i.bytes), 0)::bigint AS bytes,
           min(d.started_at) AS started_at, max(i.result) AS result
    FROM done d
    JOIN input i ON i.id = d.id
    GROUP BY d.job_id
), jobs AS MATERIALIZED (
    SELECT j.id FROM job j WHERE j.id = ANY (ARRAY(SELECT job_id FROM gained)) ORDER BY j.id FOR NO KEY UPDATE
), counted AS (
    UPDATE job j
    SET done = j.done + g.done, reused = j.reused + g.reused, rows = j.rows + g.rows, bytes = j.bytes + g.bytes,
        result = COALESCE(g.result, j.result), version = j.version + 1, updated_at = clock_timestamp(),
        started_at = LEAST(j.started_at, g.started_at),
        status = CASE
            WHEN j.status NOT IN ('SUBMITTED', 'IN_PROGRESS') THEN j.status
            WHEN j.done + g.done = j.total THEN 'COMPLETED'
            WHEN j.done + g.done + j.failed + j.cancelled = j.total THEN 'FAILED'
            ELSE 'IN_PROGRESS' END,
        completed_at = CASE
            WHEN j.done + g.done + j.failed + j.cancelled = j.total THEN clock_timestamp()
            ELSE j.completed_at END
    FROM gained g
    WHERE j.id = g.job_id AND j.id = ANY (ARRAY(SELECT id FROM jobs))
    RETURNING j.id, j.status, j.job_type, j.dataset, j.completed_at
), asked_for AS (
    -- What some trigger waits for is left for the duty that judges it.
    INSERT INTO trigger_due (job_id, term, completed_at)
    SELECT c.id, t.term, c.completed_at
    FROM counted c
    CROSS JOIN LATERAL (
        SELECT CASE WHEN c.job_type = 'EXPORT' THEN 'dataset:' || c.dataset ELSE 'job:' || c.job_type END
    ) AS t (term)
    WHERE c.status = 'COMPLETED' AND EXISTS (SELECT FROM trigger_rule r WHERE r.after_terms @> ARRAY[t.term])
    ON CONFLICT DO NOTHING
)
SELECT id, fence FROM done
