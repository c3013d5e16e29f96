-- Dead chunks that the second look moved; the row is ours since the guard.
UPDATE outhaul.job
SET failed = failed - $2, error_message = CASE WHEN failed > $2 THEN error_message END
WHERE id = $1
