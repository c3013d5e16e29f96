-- ?1 schedule, ?2 [slot, …]
SELECT slot FROM schedule_slot WHERE schedule_id = ?1 AND slot IN (SELECT value FROM json_each(?2))
