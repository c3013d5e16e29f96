-- ?1 [{chunk, from, to, attempt, worker, step, cause}, …] in the order in which it happened, ?2 now
INSERT INTO chunk_history (chunk_id, at, worker_id, attempt, from_state, to_state, step, cause)
SELECT e.value ->> 'chunk', ?2, e.value ->> 'worker', e.value ->> 'attempt',
       e.value ->> 'from', e.value ->> 'to', e.value ->> 'step', e.value ->> 'cause'
FROM json_each(?1) AS e
ORDER BY e.key
