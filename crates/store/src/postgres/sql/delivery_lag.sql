SELECT (SELECT count(*)
        FROM announcement a
        WHERE a.until > clock_timestamp()
          AND EXISTS (SELECT FROM job_chunk c WHERE c.id = a.chunk_id AND c.fence = a.fence AND c.state || '' = 'QUEUED')
       ) AS announced,
       (SELECT count(*) FROM outbox) AS outbox,
       GREATEST(clock_timestamp() - (SELECT o.created_at FROM outbox o ORDER BY o.id LIMIT 1), interval '0') AS oldest
