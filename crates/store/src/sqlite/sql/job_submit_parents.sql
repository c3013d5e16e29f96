-- ?1 child, ?2 [parent, …]
INSERT INTO job_parent (child_id, parent_id)
SELECT ?1, value FROM json_each(?2)
