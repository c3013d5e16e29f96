-- Nothing keeps them back any more but their time. ?1 job
UPDATE job_chunk SET waits_for = 0 WHERE job_id = ?1 AND waits_for > 0
