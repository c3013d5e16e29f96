WITH slots AS (
    DELETE FROM outhaul.schedule_slot
    WHERE ctid = ANY (ARRAY(
              SELECT ctid FROM outhaul.schedule_slot WHERE at < now() - $1::interval ORDER BY at LIMIT $2
              FOR UPDATE SKIP LOCKED))
    RETURNING 1
), fires AS (
    DELETE FROM outhaul.trigger_fire
    WHERE ctid = ANY (ARRAY(
              SELECT ctid FROM outhaul.trigger_fire WHERE at < now() - $1::interval AND state <> 'due' ORDER BY at LIMIT $2
              FOR UPDATE SKIP LOCKED))
    RETURNING 1
), arrivals AS (
    DELETE FROM outhaul.trigger_arrival
    WHERE ctid = ANY (ARRAY(
              SELECT ctid FROM outhaul.trigger_arrival WHERE completed_at < now() - $1::interval ORDER BY completed_at LIMIT $2
              FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT (SELECT count(*) FROM slots) + (SELECT count(*) FROM fires) + (SELECT count(*) FROM arrivals)
