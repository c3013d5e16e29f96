-- One by its name; or all, without what they submit, which may be large.
SELECT id, name, cron, timezone,
       CASE WHEN $1::text IS NULL THEN 'null' ELSE job END AS job,
       overlap, catch_up, catch_up_limit, jitter_micros, origin, owner, paused, next_slot,
       fire_at, version, created_at, updated_at
FROM outhaul.schedule
WHERE $1::text IS NULL OR name = $1
ORDER BY name COLLATE "C"
