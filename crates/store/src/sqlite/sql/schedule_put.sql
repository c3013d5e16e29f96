INSERT INTO schedule (name, cron, timezone, job, overlap, catch_up, catch_up_limit, jitter_micros, origin, owner,
                      next_slot, fire_at, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13)
