-- The guard of fifty concurrent redrives: only a FAILED job, or one that goes on with dead chunks.
UPDATE outhaul.job
SET status = 'IN_PROGRESS', failed = failed - $2, completed_at = NULL,
    -- What stays dead still says why.
    -- Chunks that have not failed yet with what it waited for are wanted after all.
    released = CASE WHEN released = 'fail' THEN 'queue' ELSE released END,
    error_message = CASE WHEN failed > $2 THEN error_message END,
    version = version + 1, updated_at = now()
WHERE id = $1 AND status IN ('FAILED', 'IN_PROGRESS') AND pruned_at IS NULL
