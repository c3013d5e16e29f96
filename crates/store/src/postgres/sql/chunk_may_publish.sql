SELECT EXISTS (
    SELECT
    FROM outhaul.job_chunk c
    JOIN outhaul.job j ON j.id = c.job_id
    WHERE c.id = $1 AND c.fence = $2 AND c.state = 'RUNNING' AND c.lease_until > clock_timestamp()
      AND j.status <> 'CANCELLED'
)
