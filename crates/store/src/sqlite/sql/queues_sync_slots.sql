-- ?1 [[name, max_concurrent], …]. Slots beyond a lowered budget stay, but are no longer taken.
INSERT INTO queue_slot (queue_id, slot)
WITH RECURSIVE slot (queue_id, number, most) AS (
    SELECT q.id, 0, q.max_concurrent
    FROM json_each(?1) AS spec JOIN queue AS q ON q.name = spec.value ->> 0
    WHERE q.max_concurrent > 0
    UNION ALL
    SELECT queue_id, number + 1, most FROM slot WHERE number + 1 < most
)
SELECT queue_id, number FROM slot WHERE true
ON CONFLICT (queue_id, slot) DO NOTHING
