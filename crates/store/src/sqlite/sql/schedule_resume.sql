-- One that is not paused keeps what it waits for. ?1 name, ?2 ?3 what it waits for from now on, ?4 now
UPDATE schedule
SET paused = 0,
    next_slot = iif(paused, ?2, next_slot),
    fire_at = iif(paused, ?3, fire_at),
    updated_at = iif(paused, ?4, updated_at)
WHERE name = ?1
