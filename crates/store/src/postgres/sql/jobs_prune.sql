-- A child that was stored while its parent was marked is seen here: the parent stays until the child has gone on.
WITH parents AS (
    DELETE FROM job_parent w
    WHERE w.child_id = ANY (ARRAY(
        SELECT j.id FROM job j
        WHERE j.pruned_at IS NOT NULL AND NOT EXISTS (SELECT FROM job_chunk c WHERE c.job_id = j.id)))
)
DELETE FROM job j
WHERE j.pruned_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM job_chunk c WHERE c.job_id = j.id)
  AND NOT EXISTS (SELECT FROM job_parent w WHERE w.parent_id = j.id AND NOT w.settled)
