-- Success of chunks of which some made or reused files: chunks, then files, each ascending. A chunk that generated a file
-- counts only if it is still the writer of its identity.
WITH given AS MATERIALIZED (
    -- The same lease may stand in a batch twice, and a stale lease of the same chunk beside it.
    SELECT DISTINCT ON (i.id, i.fence) i.*
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[], $5::text[], $6::text[],
                $7::text[], $8::text[], $9::text[], $10::date[], $11::text[],
                $12::text[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[],
                $19::bigint[], $20::timestamptz[])
         AS i (id, fence, result, claimed_at, kind, reason,
               dataset, scope, key, effective_date, variant,
               path, rows, bytes, sha256, etag, format, definition,
               generation, generated_at)
), locked AS MATERIALIZED (
    SELECT g.*, c.job_id, c.started_at, clock_timestamp() AS at
    FROM given g
    CROSS JOIN LATERAL (
        SELECT c.job_id, c.started_at
        FROM outhaul.job_chunk c
        WHERE c.id = g.id AND c.fence = g.fence AND c.state || '' = 'RUNNING'
        FOR UPDATE
    ) c
), named AS MATERIALIZED (
    SELECT l.*, k.file_id, k.writes
    FROM locked l
    CROSS JOIN LATERAL (
        SELECT k.id AS file_id, (k.writer_chunk, k.writer_fence) = (l.id, l.fence) AS writes
        FROM outhaul.file_cache k
        WHERE k.dataset = l.dataset AND k.scope = l.scope AND k.key = l.key
          AND k.effective_date = l.effective_date AND k.variant = l.variant
        OFFSET 0
    ) k
    WHERE l.kind = 'reused' OR (l.kind = 'generated' AND k.writes)
    ORDER BY k.file_id
), filed AS MATERIALIZED (
    SELECT n.*, k.next
    FROM named n
    CROSS JOIN LATERAL (
        SELECT k.generation + 1 AS next
        FROM outhaul.file_cache k
        WHERE k.id = n.file_id
          AND (n.kind = 'reused' OR (k.writer_chunk = n.id AND k.writer_fence = n.fence))
        FOR NO KEY UPDATE
    ) k
), written AS (
    -- The rows are locked, so each of them is there: what is inserted here always meets the row and updates it. An
    -- UPDATE would join two lists, and the planner could turn the join around.
    INSERT INTO outhaul.file_cache AS k (
        id, dataset, scope, key, effective_date, variant, generation, path, rows, bytes, sha256, etag, format, definition,
        claimed_at, last_generated_at, job_id)
    OVERRIDING SYSTEM VALUE
    SELECT f.file_id, f.dataset, f.scope, f.key, f.effective_date, f.variant, f.next, f.path, f.rows, f.bytes, f.sha256,
           f.etag, f.format, f.definition, f.claimed_at, f.at, (SELECT j.job_id FROM outhaul.job j WHERE j.id = f.job_id)
    FROM filed f
    WHERE f.kind = 'generated'
    ON CONFLICT (id) DO UPDATE
    SET generation = excluded.generation, path = excluded.path, rows = excluded.rows, bytes = excluded.bytes,
        sha256 = excluded.sha256, etag = excluded.etag, format = excluded.format, definition = excluded.definition,
        claimed_at = excluded.claimed_at, last_generated_at = excluded.last_generated_at, job_id = excluded.job_id,
        writer_chunk = NULL, writer_fence = NULL, upload_path = NULL, upload_id = NULL
), recorded AS (
    INSERT INTO outhaul.chunk_file (
        chunk_id, file_id, generation, rows, bytes, generated_at, reused, path, sha256, etag, format, reason)
    SELECT f.id, f.file_id, CASE f.kind WHEN 'generated' THEN f.next ELSE f.generation END, f.rows, f.bytes,
           CASE f.kind WHEN 'generated' THEN f.at ELSE f.generated_at END, f.kind = 'reused', f.path, f.sha256, f.etag,
           f.format, f.reason
    FROM filed f
    ON CONFLICT (chunk_id) DO NOTHING
    RETURNING chunk_id
), accepted AS MATERIALIZED (
    SELECT l.id, l.fence, l.job_id, l.started_at, l.kind = 'reused' AS reused, l.rows, l.bytes, l.result
    FROM locked l
    WHERE l.kind = 'none' OR l.id IN (SELECT r.chunk_id FROM recorded r)
