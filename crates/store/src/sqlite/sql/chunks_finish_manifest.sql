-- ?1 [{chunk, file, path, rows, bytes, sha256, etag, format, reused, reason, generated_at, generation}, …]
INSERT INTO chunk_file (chunk_id, file_id, path, rows, bytes, sha256, etag, format, reused, reason,
                        generated_at, generation)
SELECT row.value ->> 'chunk', row.value ->> 'file', row.value ->> 'path', row.value ->> 'rows',
       row.value ->> 'bytes', row.value ->> 'sha256', row.value ->> 'etag', row.value ->> 'format',
       row.value ->> 'reused', row.value ->> 'reason', row.value ->> 'generated_at',
       row.value ->> 'generation'
FROM json_each(?1) AS row
