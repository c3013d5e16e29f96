-- Held chunks, and dead ones: all, or of those only that are still dead as they were when looked at.
-- ?1 job, ?2 [[chunk, fence], …] or null
SELECT id, job_id, state, attempt
FROM job_chunk
WHERE job_id = ?1
  AND ((state = 'DEAD'
        AND (?2 IS NULL OR (id, fence) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?2))))
       OR (state = 'CREATED' AND held = 1))
ORDER BY id
