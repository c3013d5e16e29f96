-- Waits whose parent has ended, and what that means to the child; `hold` waits for another end, and a child
-- that has ended itself waits for nobody. ?1 limit
SELECT w.child_id, w.parent_id, p.job_id AS parent, p.status, c.total,
       CASE
           WHEN c.status NOT IN ('SUBMITTED', 'IN_PROGRESS') THEN 'nothing'
           WHEN p.status = 'COMPLETED' THEN 'run'
           ELSE c.on_parent_failure END AS what
FROM job_parent AS w INDEXED BY parent_of_job
CROSS JOIN job AS p ON p.id = w.parent_id
CROSS JOIN job AS c ON c.id = w.child_id
WHERE w.settled = 0
  AND ((p.completed_at IS NOT NULL AND (p.status = 'COMPLETED' OR c.on_parent_failure <> 'hold'))
       OR c.status IN ('COMPLETED', 'FAILED', 'CANCELLED'))
ORDER BY w.child_id, w.parent_id
LIMIT ?1
