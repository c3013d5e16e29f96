-- What was due and not yet submitted never will be, for its parents stand in the order of what was asked for.
-- ?1 trigger, ?2 detail, ?3 now
UPDATE trigger_fire SET state = 'refused', detail = ?2, at = ?3 WHERE trigger_id = ?1 AND state = 'due'
