-- Writes the job's row only; its chunks follow in sweeps. `now`: this statement cancelled it.
WITH cancelled AS (
    UPDATE outhaul.job
    SET status = 'CANCELLED', version = version + 1, updated_at = now()
    WHERE job_id = $1 AND status IN ('SUBMITTED', 'IN_PROGRESS') AND pruned_at IS NULL
    RETURNING status
)
SELECT status, true AS now FROM cancelled
UNION ALL
SELECT status, false AS now
FROM outhaul.job
WHERE job_id = $1 AND pruned_at IS NULL AND NOT EXISTS (SELECT FROM cancelled)
