-- What the chunk's own row tells (inserted, first claim, SUCCESS) and what was written down.
-- ?1 job id, ?2 chunk key or null, ?3 ?4 ?5 after this time, chunk and sequence, or null, ?6 limit
WITH own AS (
    SELECT c.id, c.chunk_key, c.state, c.fence, c.attempt, c.worker_id, c.started_at, c.completed_at,
           j.created_at, j.run_at, EXISTS (SELECT 1 FROM job_parent AS w WHERE w.child_id = j.id) AS waited
    FROM job AS j
    CROSS JOIN job_chunk AS c ON c.job_id = j.id
    WHERE j.job_id = ?1 AND j.pruned_at IS NULL AND (?2 IS NULL OR c.chunk_key = ?2)
), told AS (
    SELECT own.id AS chunk_id, own.chunk_key, own.created_at AS at, 0 AS sequence, NULL AS from_state,
           iif(own.waited OR own.run_at > own.created_at, 'CREATED', 'QUEUED') AS to_state, 0 AS attempt,
           NULL AS worker_id, NULL AS step, NULL AS cause
    FROM own
    UNION ALL
    SELECT own.id, own.chunk_key, own.started_at, 1, 'QUEUED', 'RUNNING', 1, iif(own.fence = 1, own.worker_id, NULL),
           NULL, NULL
    FROM own
    WHERE own.started_at IS NOT NULL
    UNION ALL
    SELECT own.id, own.chunk_key, h.at, 1 + h.id, h.from_state, h.to_state, h.attempt, h.worker_id, h.step, h.cause
    FROM own
    CROSS JOIN chunk_history AS h ON h.chunk_id = own.id
    UNION ALL
    SELECT own.id, own.chunk_key, own.completed_at, 9223372036854775807, 'RUNNING', 'SUCCESS', own.attempt,
           iif(own.fence = 1, own.worker_id, NULL), NULL, NULL
    FROM own
    WHERE own.state = 'SUCCESS'
)
SELECT chunk_id, chunk_key, at, sequence, from_state, to_state, attempt, worker_id, step, cause
FROM told
WHERE ?3 IS NULL OR (at, chunk_id, sequence) > (?3, ?4, ?5)
ORDER BY at, chunk_id, sequence
LIMIT ?6
