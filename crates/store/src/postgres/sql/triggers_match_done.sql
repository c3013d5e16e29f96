DELETE FROM trigger_due WHERE job_id = ANY ($1::bigint[])
