SELECT EXISTS (
    SELECT
    FROM outhaul.job_chunk c
    WHERE c.id = $1 AND c.fence = $2 AND c.state || '' = 'RUNNING' AND c.lease_until > clock_timestamp()
      AND (SELECT j.status FROM outhaul.job j WHERE j.id = c.job_id) <> 'CANCELLED'
)
