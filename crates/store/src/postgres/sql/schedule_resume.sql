UPDATE outhaul.schedule
SET paused = false,
    next_slot = CASE WHEN paused THEN $2::timestamptz ELSE next_slot END,
    fire_at = CASE WHEN paused THEN $3::timestamptz ELSE fire_at END,
    updated_at = CASE WHEN paused THEN clock_timestamp() ELSE updated_at END
WHERE name = $1
