-- Stores a schedule; no row comes back if one of the configuration stands in the way of the API. What it
-- waits for changes only with its times, so that a repeated put moves no slot.
WITH given AS (
    SELECT $1::text AS name, $2::text AS cron, $3::text AS timezone, $4::text AS job, $5::text AS overlap,
           $6::text AS catch_up, $7::integer AS catch_up_limit, $8::bigint AS jitter_micros, $9::text AS origin,
           $10::text AS owner, $11::timestamptz AS next_slot, $12::timestamptz AS fire_at
)
INSERT INTO outhaul.schedule AS s (name, cron, timezone, job, overlap, catch_up, catch_up_limit, jitter_micros, origin,
                           owner, next_slot, fire_at)
SELECT * FROM given
ON CONFLICT (name) DO UPDATE
SET cron = EXCLUDED.cron, timezone = EXCLUDED.timezone, job = EXCLUDED.job, overlap = EXCLUDED.overlap,
    catch_up = EXCLUDED.catch_up, catch_up_limit = EXCLUDED.catch_up_limit,
    jitter_micros = EXCLUDED.jitter_micros, origin = EXCLUDED.origin, owner = EXCLUDED.owner,
    next_slot = CASE WHEN (s.cron, s.timezone, s.jitter_micros)
                          = (EXCLUDED.cron, EXCLUDED.timezone, EXCLUDED.jitter_micros)
                     THEN COALESCE(s.next_slot, EXCLUDED.next_slot) ELSE EXCLUDED.next_slot END,
    fire_at = CASE WHEN (s.cron, s.timezone, s.jitter_micros)
                        = (EXCLUDED.cron, EXCLUDED.timezone, EXCLUDED.jitter_micros)
                   THEN COALESCE(s.fire_at, EXCLUDED.fire_at) ELSE EXCLUDED.fire_at END,
    version = CASE WHEN (s.cron, s.timezone, s.job, s.overlap, s.catch_up, s.catch_up_limit, s.jitter_micros,
                         s.owner)
                        = (EXCLUDED.cron, EXCLUDED.timezone, EXCLUDED.job, EXCLUDED.overlap, EXCLUDED.catch_up,
                           EXCLUDED.catch_up_limit, EXCLUDED.jitter_micros, EXCLUDED.owner)
                   THEN s.version ELSE s.version + 1 END,
    updated_at = CASE WHEN (s.cron, s.timezone, s.job, s.overlap, s.catch_up, s.catch_up_limit,
                            s.jitter_micros, s.owner, s.origin)
                           = (EXCLUDED.cron, EXCLUDED.timezone, EXCLUDED.job, EXCLUDED.overlap, EXCLUDED.catch_up,
                              EXCLUDED.catch_up_limit, EXCLUDED.jitter_micros, EXCLUDED.owner, EXCLUDED.origin)
                      THEN s.updated_at ELSE clock_timestamp() END
WHERE s.origin = 'api' OR EXCLUDED.origin = 'config'
RETURNING xmax = 0 AS created
