-- Waits whose parent has ended, and what that means to the child; `hold` waits for another end.
-- ?1 limit
SELECT w.child_id, w.parent_id, p.job_id AS parent, p.status,
       iif(p.status = 'COMPLETED', 'run', c.on_parent_failure) AS what
FROM job_parent AS w INDEXED BY parent_of_job
CROSS JOIN job AS p ON p.id = w.parent_id
CROSS JOIN job AS c ON c.id = w.child_id
WHERE w.settled = 0 AND p.completed_at IS NOT NULL
  AND (p.status = 'COMPLETED' OR c.on_parent_failure <> 'hold')
ORDER BY w.child_id, w.parent_id
LIMIT ?1
