-- What a broker was told of, and what it is still to be told.

-- One row per QUEUED chunk whose message is on its way. It counts while the chunk is QUEUED under this
-- fence and `until` lies ahead; at most `delivery.window` of a queue do.
CREATE TABLE announcement (
    queue_id INTEGER NOT NULL,
    chunk_id INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    until    INTEGER NOT NULL,
    -- How often it ran out before, and how often a worker could not claim it; under this fence.
    times    INTEGER NOT NULL DEFAULT 0,
    waits    INTEGER NOT NULL DEFAULT 0,
    -- A relay publishes it; the broker has it; its message was consumed in vain.
    standing TEXT    NOT NULL DEFAULT 'held' CHECK (standing IN ('held', 'sent', 'deferred')),
    PRIMARY KEY (queue_id, chunk_id)
) STRICT, WITHOUT ROWID;

-- Messages for the parking queue, deleted when the broker has confirmed them.
CREATE TABLE outbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id  TEXT    NOT NULL UNIQUE,
    body        TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    -- Handed to a relay until then.
    taken_until INTEGER
) STRICT;
