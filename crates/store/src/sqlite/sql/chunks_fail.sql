-- A chunk of a CANCELLED job is recorded as CANCELLED.
-- ?1 [{chunk, fence, expired, run_at: null | when to try again, cause, detail, step}, …], ?2 now
UPDATE job_chunk
SET state = after.state,
    run_at = iif(after.state = 'RETRY', after.run_at, NULL),
    error_message = after.cause,
    error_detail = after.detail,
    step = after.step,
    first_failed_at = coalesce(first_failed_at, ?2),
    completed_at = iif(after.state = 'RETRY', NULL, ?2),
    returned = 0,
    lost = iif(after.expired, lost + 1, 0),
    lease_until = NULL, worker_id = NULL
FROM (
    SELECT c.id, f.value ->> 'expired' AS expired, f.value ->> 'run_at' AS run_at, f.value ->> 'cause' AS cause,
           f.value ->> 'detail' AS detail, f.value ->> 'step' AS step,
           CASE WHEN j.status = 'CANCELLED' THEN 'CANCELLED'
                WHEN f.value ->> 'run_at' IS NULL THEN 'DEAD'
                ELSE 'RETRY' END AS state
    FROM json_each(?1) AS f
    CROSS JOIN job_chunk AS c ON c.id = f.value ->> 'chunk'
    CROSS JOIN job AS j ON j.id = c.job_id
    WHERE c.fence = f.value ->> 'fence' AND c.state = 'RUNNING'
      AND (NOT f.value ->> 'expired' OR c.lease_until < ?2)
) AS after
WHERE job_chunk.id = after.id
RETURNING id, fence, job_id, started_at, state, chunk_key, key, effective_date, step, error_message, error_detail
