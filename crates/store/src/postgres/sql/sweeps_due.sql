-- One cheap look for all sweeps that move jobs on. Each part is the first entry of an index.
SELECT EXISTS (SELECT FROM outhaul.job_chunk c
               WHERE c.state IN ('CREATED', 'RETRY') AND NOT c.held AND c.waits_for = 0 AND c.run_at <= now())
           OR EXISTS (SELECT FROM outhaul.job j
                      WHERE j.status IN ('FAILED', 'CANCELLED') AND j.completed_at IS NULL)
           OR EXISTS (SELECT FROM outhaul.job j WHERE j.released IS NOT NULL)
           OR EXISTS (SELECT FROM outhaul.job_parent w WHERE NOT w.settled) AS stage,
       EXISTS (SELECT FROM outhaul.schedule s WHERE NOT s.paused AND s.fire_at <= now()) AS schedules,
       EXISTS (SELECT FROM outhaul.trigger_due)
           OR EXISTS (SELECT FROM outhaul.trigger_fire f WHERE f.state = 'due') AS triggers,
       LEAST((SELECT c.run_at
              FROM outhaul.job_chunk c
              WHERE c.state IN ('CREATED', 'RETRY') AND NOT c.held AND c.waits_for = 0 AND c.run_at > now()
              ORDER BY c.run_at
              LIMIT 1),
             (SELECT s.fire_at
              FROM outhaul.schedule s
              WHERE NOT s.paused AND s.fire_at > now()
              ORDER BY s.fire_at
              LIMIT 1)) - now() AS next
