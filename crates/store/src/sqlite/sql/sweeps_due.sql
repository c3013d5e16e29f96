-- One cheap look for all sweeps that move jobs on. Each part is the first entry of an index.
-- ?1 now
SELECT EXISTS (SELECT 1 FROM job_chunk INDEXED BY chunk_due
               WHERE state IN ('CREATED', 'RETRY') AND held = 0 AND waits_for = 0 AND coalesce(run_at, 0) <= ?1)
           OR EXISTS (SELECT 1 FROM job INDEXED BY job_closing
                      WHERE completed_at IS NULL AND status IN ('FAILED', 'CANCELLED'))
           OR EXISTS (SELECT 1 FROM job_parent INDEXED BY parent_of_job WHERE settled = 0) AS stage,
       EXISTS (SELECT 1 FROM schedule INDEXED BY schedule_due WHERE paused = 0 AND fire_at <= ?1) AS schedules,
       EXISTS (SELECT 1 FROM trigger_due)
           OR EXISTS (SELECT 1 FROM trigger_fire INDEXED BY trigger_fire_due WHERE state = 'due') AS triggers,
       (SELECT min(at)
        FROM (SELECT (SELECT min(coalesce(run_at, 0)) FROM job_chunk INDEXED BY chunk_due
                      WHERE state IN ('CREATED', 'RETRY') AND held = 0 AND waits_for = 0
                        AND coalesce(run_at, 0) > ?1) AS at
              UNION ALL
              SELECT (SELECT min(fire_at) FROM schedule INDEXED BY schedule_due WHERE paused = 0 AND fire_at > ?1))
       ) - ?1 AS next
