-- The guard of fifty concurrent redrives: only a FAILED job, or one that goes on with dead chunks.
UPDATE job
SET status = 'IN_PROGRESS', failed = failed - $2, error_message = NULL, completed_at = NULL,
    version = version + 1, updated_at = now()
WHERE id = $1 AND status IN ('FAILED', 'IN_PROGRESS') AND pruned_at IS NULL
