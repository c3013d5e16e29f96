-- A child may be stored while its parent is being marked. The child is seen here, and the parent stays until the
-- dependency is settled.
WITH parents AS (
    DELETE FROM outhaul.job_parent w
    WHERE w.child_id = ANY (ARRAY(
        SELECT j.id FROM outhaul.job j
        WHERE j.pruned_at IS NOT NULL AND NOT EXISTS (SELECT FROM outhaul.job_chunk c WHERE c.job_id = j.id)))
)
DELETE FROM outhaul.job j
WHERE j.pruned_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM outhaul.job_chunk c WHERE c.job_id = j.id)
  AND NOT EXISTS (SELECT FROM outhaul.job_parent w WHERE w.parent_id = j.id AND NOT w.settled)
