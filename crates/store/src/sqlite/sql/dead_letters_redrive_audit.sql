-- In the transaction that redrives the job: there is an entry if and only if it was redriven.
-- ?1 job, ?2 now, ?3 actor, ?4 act, ?5 detail
INSERT INTO audit (at, actor, act, job_id, detail)
SELECT ?2, ?3, ?4, job_id, ?5 FROM job WHERE id = ?1
