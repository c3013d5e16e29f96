-- What it waits for changes only with its times, so that a repeated put moves no slot. ?1–?13 as for a new
-- one, ?14 whether what it says changes
UPDATE schedule
SET cron = ?2, timezone = ?3, job = ?4, overlap = ?5, catch_up = ?6, catch_up_limit = ?7, jitter_micros = ?8,
    origin = ?9, owner = ?10,
    next_slot = iif((cron, timezone, jitter_micros) = (?2, ?3, ?8), coalesce(next_slot, ?11), ?11),
    fire_at = iif((cron, timezone, jitter_micros) = (?2, ?3, ?8), coalesce(fire_at, ?12), ?12),
    version = version + ?14,
    updated_at = ?13
WHERE name = ?1
