-- Dead chunks that the second look moved; the row is ours since the guard.
UPDATE job SET failed = failed - $2 WHERE id = $1
