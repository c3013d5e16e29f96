-- The newest job of an earlier firing that has not ended. Bounded: nobody has thousands at once.
SELECT j.job_id
FROM (
    SELECT l.slot, l.job_id
    FROM outhaul.schedule_slot l
    WHERE l.schedule_id = $1 AND l.outcome = 'fired'
    ORDER BY l.slot DESC
    LIMIT 1000
) AS l
JOIN outhaul.job j ON j.job_id = l.job_id
WHERE j.status || '' IN ('SUBMITTED', 'IN_PROGRESS')
ORDER BY l.slot DESC
LIMIT 1
