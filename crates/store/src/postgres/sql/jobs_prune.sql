-- A child may be stored while its parent is being marked. The child is seen here, and the parent stays until the
-- dependency is settled.
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
