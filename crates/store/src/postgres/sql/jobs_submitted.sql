SELECT * FROM job_view WHERE id = ANY ($1::bigint[])
