-- ?1 one name; or null for all, without what they submit, which may be large
SELECT id, name, cron, timezone, iif(?1 IS NULL, 'null', job) AS job, overlap, catch_up, catch_up_limit, jitter_micros,
       origin, owner, paused, next_slot, fire_at, version, created_at, updated_at
FROM schedule WHERE ?1 IS NULL OR name = ?1 ORDER BY name
