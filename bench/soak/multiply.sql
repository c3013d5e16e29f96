-- Multiplies every job of a store, with its chunks, files and history: psql -v copies=1000 -f multiply.sql
--
-- A copy has all columns of its original, whichever the schema has, but for those that `changed` names: there,
-- `o` is the original's row and `k` the number of the copy. Ids move by a stride that is larger than any
-- original's id.
\set ON_ERROR_STOP on
\set QUIET on

CREATE TEMP TABLE changed (place integer, tab text, col text, becomes text);
INSERT INTO changed VALUES
    (1, 'job', 'id', 'o.id + k * 1000000'),
    (1, 'job', 'job_id', 'left(o.job_id, 10) || upper(lpad(to_hex(k), 8, ''0'')) || right(o.job_id, 5)'),
    (1, 'job', 'idempotency_key', 'NULL'),
    (1, 'job', 'first_chunk', 'o.first_chunk + k * 1000000'),
    (2, 'job_chunk', 'id', 'o.id + k * 1000000'),
    (2, 'job_chunk', 'job_id', 'o.job_id + k * 1000000'),
    (3, 'job_parent', 'child_id', 'o.child_id + k * 1000000'),
    (3, 'job_parent', 'parent_id', 'o.parent_id + k * 1000000'),
    (4, 'file_cache', 'id', 'o.id + k * 1000000'),
    (4, 'file_cache', 'key', 'o.key || ''-'' || k'),
    (5, 'chunk_file', 'chunk_id', 'o.chunk_id + k * 1000000'),
    (5, 'chunk_file', 'file_id', 'o.file_id + k * 1000000'),
    (6, 'chunk_history', 'id', 'o.id + k * 1000000'),
    (6, 'chunk_history', 'chunk_id', 'o.chunk_id + k * 1000000');

CREATE TEMP VIEW copied AS
SELECT t.place, t.tab, c.table_schema, c.column_name, c.ordinal_position,
       COALESCE((SELECT x.becomes FROM changed x WHERE x.tab = t.tab AND x.col = c.column_name),
                format('o.%I', c.column_name)) AS value
FROM (SELECT DISTINCT place, tab FROM changed) t
JOIN information_schema.columns c ON c.table_name = t.tab AND c.is_generated = 'NEVER'
WHERE c.table_schema NOT IN ('pg_catalog', 'information_schema');

SELECT format('INSERT INTO %1$I.%2$I (%3$s) OVERRIDING SYSTEM VALUE SELECT %4$s FROM %1$I.%2$I o, '
              'generate_series(1, %5$s::bigint) k ORDER BY k', table_schema, tab,
              string_agg(format('%I', column_name), ', ' ORDER BY ordinal_position),
              string_agg(value, ', ' ORDER BY ordinal_position), :copies)
FROM copied
GROUP BY place, table_schema, tab
ORDER BY place
\gexec

SELECT format('SELECT setval(pg_get_serial_sequence(%L, ''id''), max(id)) FROM %I.%I',
              format('%I.%I', table_schema, tab), table_schema, tab)
FROM copied
WHERE column_name = 'id'
\gexec

VACUUM ANALYZE;
