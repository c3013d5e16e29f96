SELECT id, name, cron, timezone, job, overlap, catch_up, catch_up_limit, jitter_micros, origin, owner, paused, next_slot,
       fire_at, version, created_at, updated_at
FROM outhaul.schedule
WHERE NOT paused AND fire_at <= $1
ORDER BY fire_at, id
LIMIT $2
