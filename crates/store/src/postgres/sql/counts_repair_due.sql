-- The next jobs that have not ended, in the order of their ids, and whether their counts are due to be compared.
-- $1 how long counts must not have moved, $2 the id before the page, $3 page
SELECT j.id, j.waits_for = 0 AND GREATEST(j.updated_at, j.checked_at) < now() - $1::interval AS due
FROM (
    (SELECT o.id, o.waits_for, o.updated_at, o.checked_at
     FROM outhaul.job o
     WHERE o.status IN ('SUBMITTED', 'IN_PROGRESS') AND o.id > $2
     ORDER BY o.id
     LIMIT $3)
    UNION ALL
    (SELECT c.id, c.waits_for, c.updated_at, c.checked_at
     FROM outhaul.job c
     WHERE c.status IN ('FAILED', 'CANCELLED') AND c.completed_at IS NULL AND c.id > $2
     ORDER BY c.id
     LIMIT $3)
) AS j
ORDER BY j.id
LIMIT $3
