-- What stays dead still says why. ?1 job, ?2 dead chunks that are queued again, ?3 now
UPDATE job
SET status = 'IN_PROGRESS', failed = failed - ?2, completed_at = NULL,
    error_message = iif(failed > ?2, error_message, NULL),
    version = version + 1, updated_at = ?3
WHERE id = ?1 AND status IN ('FAILED', 'IN_PROGRESS')
