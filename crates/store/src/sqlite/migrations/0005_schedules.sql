-- Jobs that are submitted by the clock. `next_slot` is the slot a schedule waits for, and the guard of its
-- firing; `fire_at` is that slot and its share of the jitter.
CREATE TABLE schedule (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    name           TEXT    NOT NULL UNIQUE,
    cron           TEXT    NOT NULL,
    timezone       TEXT    NOT NULL,
    job            TEXT    NOT NULL,
    overlap        TEXT    NOT NULL CHECK (overlap IN ('skip', 'queue', 'allow')),
    catch_up       TEXT    NOT NULL CHECK (catch_up IN ('none', 'last', 'all')),
    catch_up_limit INTEGER NOT NULL,
    jitter_micros  INTEGER NOT NULL,
    origin         TEXT    NOT NULL CHECK (origin IN ('api', 'config')),
    owner          TEXT    NOT NULL,
    paused         INTEGER NOT NULL DEFAULT 0,
    next_slot      INTEGER,
    fire_at        INTEGER,
    version        INTEGER NOT NULL DEFAULT 1,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL
) STRICT;
CREATE INDEX schedule_due ON schedule (fire_at) WHERE paused = 0;

-- What became of each slot; whoever inserts the row has fired it.
CREATE TABLE schedule_slot (
    schedule_id INTEGER NOT NULL REFERENCES schedule (id) ON DELETE CASCADE,
    slot        INTEGER NOT NULL,
    outcome     TEXT    NOT NULL CHECK (outcome IN ('fired', 'skipped', 'missed', 'refused')),
    job_id      TEXT,
    detail      TEXT,
    at          INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, slot)
) STRICT;
CREATE INDEX schedule_slot_at ON schedule_slot (at);

-- Jobs that are submitted when others have completed. `after_terms` is a JSON list.
CREATE TABLE trigger_rule (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT    NOT NULL UNIQUE,
    after_terms   TEXT    NOT NULL,
    match_label   TEXT,
    within_micros INTEGER,
    job           TEXT    NOT NULL,
    produces      TEXT    NOT NULL,
    origin        TEXT    NOT NULL CHECK (origin IN ('api', 'config')),
    owner         TEXT    NOT NULL,
    -- Since when it asks for what it asks for: what completed before does not concern it.
    since         INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT;

-- Jobs that completed and that some trigger asks for, written in the transaction that completed them.
CREATE TABLE trigger_due (
    job_id       INTEGER PRIMARY KEY,
    term         TEXT    NOT NULL,
    completed_at INTEGER NOT NULL
) STRICT;
CREATE INDEX trigger_due_in_order ON trigger_due (completed_at, job_id);

-- Completed jobs by what they answer to; the newest of each term make a set.
CREATE TABLE trigger_arrival (
    trigger_id   INTEGER NOT NULL REFERENCES trigger_rule (id) ON DELETE CASCADE,
    value        TEXT    NOT NULL,
    term         TEXT    NOT NULL,
    job_id       TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    completed_at INTEGER NOT NULL,
    PRIMARY KEY (trigger_id, value, term, job_id)
) STRICT;
CREATE INDEX trigger_arrival_newest ON trigger_arrival (trigger_id, value, term, completed_at);
CREATE INDEX trigger_arrival_at ON trigger_arrival (completed_at);

-- A set fires once: whoever inserts the row makes it due, whoever takes it out of 'due' submits the job.
-- `parents` is a JSON list.
CREATE TABLE trigger_fire (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    trigger_id INTEGER NOT NULL REFERENCES trigger_rule (id) ON DELETE CASCADE,
    value      TEXT    NOT NULL,
    parents    TEXT    NOT NULL,
    state      TEXT    NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'fired', 'refused')),
    job_id     TEXT,
    detail     TEXT,
    at         INTEGER NOT NULL,
    UNIQUE (trigger_id, value, parents)
) STRICT;
CREATE INDEX trigger_fire_due ON trigger_fire (id) WHERE state = 'due';
CREATE INDEX trigger_fire_at ON trigger_fire (at);
CREATE INDEX trigger_fire_of_rule ON trigger_fire (trigger_id, id);
