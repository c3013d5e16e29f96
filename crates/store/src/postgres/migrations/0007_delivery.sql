-- What a broker was told of, and what it is still to be told.

-- One row per QUEUED chunk whose message is on its way. It counts while the chunk is QUEUED under this
-- fence and `until` lies ahead; at most `delivery.window` of a queue do.
CREATE TABLE announcement (
    chunk_id bigint PRIMARY KEY,
    fence    bigint NOT NULL,
    until    timestamptz NOT NULL,
    queue_id integer NOT NULL,
    -- How often it ran out before, and how often a worker could not claim it; under this fence.
    times    smallint NOT NULL DEFAULT 0,
    waits    smallint NOT NULL DEFAULT 0,
    -- A relay publishes it; the broker has it; its message was consumed in vain.
    standing text NOT NULL DEFAULT 'held' CHECK (standing IN ('held', 'sent', 'deferred'))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Messages for the parking queue, deleted when the broker has confirmed them.
CREATE TABLE outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id  text NOT NULL UNIQUE,
    body        text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    -- Handed to a relay until then.
    taken_until timestamptz
) WITH (fillfactor = 70);
