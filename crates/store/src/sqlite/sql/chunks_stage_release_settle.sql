-- ?1 [[child, parent], …]
UPDATE job_parent
SET settled = 1
WHERE settled = 0
  AND (child_id, parent_id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))
