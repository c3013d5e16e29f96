SELECT id FROM outhaul.job WHERE job_id = $1 AND pruned_at IS NULL
