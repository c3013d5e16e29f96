WITH chunk AS (
    SELECT c.id, c.chunk_key, c.state, c.fence, c.attempt, c.worker_id, c.started_at, c.completed_at,
           j.created_at, j.run_at, EXISTS (SELECT FROM outhaul.job_parent w WHERE w.child_id = j.id) AS waited
    FROM outhaul.job j
    JOIN outhaul.job_chunk c ON c.job_id = j.id
    WHERE j.job_id = $1 AND j.pruned_at IS NULL AND ($2::text IS NULL OR c.chunk_key = $2)
), told AS (
    SELECT c.id AS chunk_id, c.chunk_key, c.created_at AS at, 0::bigint AS sequence, NULL::text AS from_state,
           CASE WHEN c.waited OR c.run_at > c.created_at THEN 'CREATED' ELSE 'QUEUED' END AS to_state, 0 AS attempt,
           NULL::bigint AS worker_id, NULL::text AS step, NULL::text AS cause
    FROM chunk c
    UNION ALL
    SELECT c.id, c.chunk_key, c.started_at, 1, 'QUEUED', 'RUNNING', 1, CASE WHEN c.fence = 1 THEN c.worker_id END,
           NULL, NULL
    FROM chunk c
    WHERE c.started_at IS NOT NULL
    UNION ALL
    SELECT c.id, c.chunk_key, h.at, 1 + h.id, h.from_state, h.to_state, h.attempt, h.worker_id, h.step, h.cause
    FROM chunk c
    JOIN outhaul.chunk_history h ON h.chunk_id = c.id
    UNION ALL
    SELECT c.id, c.chunk_key, c.completed_at, 9223372036854775807, 'RUNNING', 'SUCCESS', c.attempt,
           CASE WHEN c.fence = 1 THEN c.worker_id END, NULL, NULL
    FROM chunk c
    WHERE c.state = 'SUCCESS'
)
SELECT chunk_id, chunk_key, at, sequence, from_state, to_state, attempt, worker_id, step, cause
FROM told
WHERE $3::timestamptz IS NULL OR (at, chunk_id, sequence) > ($3, $4::bigint, $5::bigint)
ORDER BY at, chunk_id, sequence
LIMIT $6
