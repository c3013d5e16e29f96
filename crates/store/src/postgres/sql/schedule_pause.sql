UPDATE outhaul.schedule
SET paused = true, updated_at = CASE WHEN paused THEN updated_at ELSE clock_timestamp() END
WHERE name = $1
