-- The dead writer replaced the recorded file, or somebody removed that file. Guarded by the writer and the generation
-- that were read: a new writer records its own file.
UPDATE outhaul.file_cache
SET generation = generation + 1, path = NULL, rows = NULL, bytes = NULL, sha256 = NULL, etag = NULL, format = NULL,
    definition = NULL, last_generated_at = NULL, claimed_at = NULL, job_id = NULL,
    writer_chunk = NULL, writer_fence = NULL, upload_path = NULL, upload_id = NULL
WHERE id = $1 AND writer_chunk = $2 AND writer_fence = $3 AND generation = $4
