DELETE FROM outhaul.trigger_due WHERE job_id = ANY ($1::bigint[])
