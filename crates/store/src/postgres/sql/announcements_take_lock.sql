-- One relay at a time looks at a queue, so that two together do not pass its window. Paused queues wait. A relay
-- that is stopped in between holds up the others for a few seconds.
WITH bounded AS MATERIALIZED (
    SELECT set_config('idle_in_transaction_session_timeout', '5s', true) AS setting
)
SELECT q.id
FROM bounded b
JOIN outhaul.queue q ON b.setting IS NOT NULL
WHERE q.id = ANY ($1::integer[]) AND NOT q.paused
ORDER BY q.id
FOR NO KEY UPDATE OF q SKIP LOCKED
