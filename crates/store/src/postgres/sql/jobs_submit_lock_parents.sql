-- In the order of their ids. Kept from being pruned, and from nothing else.
SELECT j.id, j.job_id, j.owner
FROM outhaul.job j
WHERE j.job_id = ANY ($1::text[]) AND j.pruned_at IS NULL
ORDER BY j.id
FOR KEY SHARE
