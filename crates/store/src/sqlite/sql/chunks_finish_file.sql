-- ?1 [{file, chunk, fence, path, rows, bytes, sha256, etag, format, definition, claimed_at, job_id}, …], ?2 now
UPDATE file_cache
SET path = new.value ->> 'path', rows = new.value ->> 'rows', bytes = new.value ->> 'bytes',
    sha256 = new.value ->> 'sha256', etag = new.value ->> 'etag', format = new.value ->> 'format',
    definition = new.value ->> 'definition', generation = generation + 1, last_generated_at = ?2,
    claimed_at = new.value ->> 'claimed_at', job_id = new.value ->> 'job_id',
    writer_chunk = NULL, writer_fence = NULL, upload_path = NULL, upload_id = NULL
FROM json_each(?1) AS new
WHERE file_cache.id = new.value ->> 'file'
  AND file_cache.writer_chunk = new.value ->> 'chunk' AND file_cache.writer_fence = new.value ->> 'fence'
