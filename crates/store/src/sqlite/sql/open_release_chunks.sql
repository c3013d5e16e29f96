-- Only one process serves a SQLite database, so whatever runs was left by one that is gone.
UPDATE job_chunk SET lease_until = 0 WHERE state = 'RUNNING'
