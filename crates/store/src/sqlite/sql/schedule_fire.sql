-- Moves a schedule on that is as it was when its jobs were made. ?1 schedule, ?2 version, ?3 the slot it waits
-- for, ?4 ?5 what it waits for afterwards
UPDATE schedule SET next_slot = ?4, fire_at = ?5 WHERE id = ?1 AND version = ?2 AND next_slot = ?3 AND paused = 0
