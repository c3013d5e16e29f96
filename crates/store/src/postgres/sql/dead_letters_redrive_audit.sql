-- In the transaction that redrives the job: there is an entry if and only if it was redriven.
INSERT INTO outhaul.audit (actor, act, job_id, detail)
SELECT $2, $3, job_id, $4 FROM outhaul.job WHERE id = $1
