-- ?1 child, ?2 waits that are over, ?3 status that follows or null, ?4 reason or null, ?5 dead chunks, ?6 now
UPDATE job
SET waits_for = iif(?3 IS NULL, max(waits_for - ?2, 0), 0), version = version + 1, updated_at = ?6,
    failed = failed + ?5, error_message = coalesce(error_message, ?4), status = coalesce(?3, status),
    completed_at = iif(done + failed + ?5 + cancelled = total, ?6, completed_at)
WHERE id = ?1
RETURNING waits_for
