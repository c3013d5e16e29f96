SELECT (SELECT count(*)
        FROM outhaul.announcement a
        WHERE a.until > clock_timestamp()
          AND EXISTS (SELECT FROM outhaul.job_chunk c WHERE c.id = a.chunk_id AND c.fence = a.fence AND c.state || '' = 'QUEUED')
       ) AS announced,
       (SELECT count(*) FROM outhaul.outbox) AS outbox,
       GREATEST(clock_timestamp() - (SELECT o.created_at FROM outhaul.outbox o ORDER BY o.id LIMIT 1), interval '0') AS oldest
