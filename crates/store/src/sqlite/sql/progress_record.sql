-- What was lost finds no chunk, and nothing goes backwards. ?1 [[chunk, fence, rows, bytes, fraction], …], ?2 now
INSERT INTO chunk_progress (chunk_id, job_id, rows, bytes, fraction, updated_at)
SELECT c.id, c.job_id, one.value ->> 2, one.value ->> 3, one.value ->> 4, ?2
FROM json_each(?1) AS one
CROSS JOIN job_chunk AS c ON c.id = one.value ->> 0
WHERE c.fence = one.value ->> 1 AND c.state = 'RUNNING'
ON CONFLICT (chunk_id) DO UPDATE
SET rows = max(rows, excluded.rows), bytes = max(bytes, excluded.bytes),
    fraction = max(fraction, excluded.fraction), reports = reports + 1, updated_at = excluded.updated_at
