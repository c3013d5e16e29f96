-- Jobs that are submitted by the clock. `next_slot` is the slot a schedule waits for, and the guard of its
-- firing; `fire_at` is that slot and its share of the jitter.
CREATE TABLE schedule (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           text NOT NULL UNIQUE,
    cron           text NOT NULL,
    timezone       text NOT NULL,
    job            text NOT NULL,
    overlap        text NOT NULL CHECK (overlap IN ('skip', 'queue', 'allow')),
    catch_up       text NOT NULL CHECK (catch_up IN ('none', 'last', 'all')),
    catch_up_limit integer NOT NULL,
    jitter_micros  bigint NOT NULL,
    origin         text NOT NULL CHECK (origin IN ('api', 'config')),
    owner          text NOT NULL,
    paused         boolean NOT NULL DEFAULT false,
    next_slot      timestamptz,
    fire_at        timestamptz,
    version        bigint NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT statement_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT statement_timestamp()
);
CREATE INDEX schedule_due ON schedule (fire_at) WHERE NOT paused;

-- What became of each slot; whoever inserts the row has fired it.
CREATE TABLE schedule_slot (
    schedule_id bigint NOT NULL REFERENCES schedule ON DELETE CASCADE,
    slot        timestamptz NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('fired', 'skipped', 'missed', 'refused')),
    job_id      text,
    detail      text,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (schedule_id, slot)
);
CREATE INDEX schedule_slot_at ON schedule_slot (at);

-- Jobs that are submitted when others have completed.
CREATE TABLE trigger_rule (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text NOT NULL UNIQUE,
    after_terms   text[] NOT NULL,
    match_label   text,
    within_micros bigint,
    job           text NOT NULL,
    produces      text NOT NULL,
    origin        text NOT NULL CHECK (origin IN ('api', 'config')),
    owner         text NOT NULL,
    -- Since when it asks for what it asks for: what completed before does not concern it.
    since         timestamptz NOT NULL DEFAULT statement_timestamp(),
    created_at    timestamptz NOT NULL DEFAULT statement_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT statement_timestamp()
);
CREATE INDEX trigger_rule_after ON trigger_rule USING gin (after_terms);

-- Jobs that completed and that some trigger asks for, written by the statement that completed them.
CREATE TABLE trigger_due (
    job_id       bigint PRIMARY KEY,
    term         text NOT NULL,
    completed_at timestamptz NOT NULL
);
CREATE INDEX trigger_due_in_order ON trigger_due (completed_at, job_id);

-- Completed jobs by what they answer to; the newest of each term make a set.
CREATE TABLE trigger_arrival (
    trigger_id   bigint NOT NULL REFERENCES trigger_rule ON DELETE CASCADE,
    value        text NOT NULL,
    term         text NOT NULL,
    job_id       text NOT NULL,
    owner        text NOT NULL,
    completed_at timestamptz NOT NULL,
    PRIMARY KEY (trigger_id, value, term, job_id)
);
CREATE INDEX trigger_arrival_newest ON trigger_arrival (trigger_id, value, term, completed_at, job_id);
CREATE INDEX trigger_arrival_of ON trigger_arrival (trigger_id, completed_at);
CREATE INDEX trigger_arrival_at ON trigger_arrival (completed_at);

-- A set fires once: whoever inserts the row makes it due, whoever takes it out of 'due' submits the job.
CREATE TABLE trigger_fire (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trigger_id bigint NOT NULL REFERENCES trigger_rule ON DELETE CASCADE,
    value      text NOT NULL,
    parents    text[] NOT NULL,
    state      text NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'fired', 'refused')),
    job_id     text,
    detail     text,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (trigger_id, value, parents)
);
CREATE INDEX trigger_fire_of ON trigger_fire (trigger_id, id);
CREATE INDEX trigger_fire_due ON trigger_fire (id) WHERE state = 'due';
CREATE INDEX trigger_fire_at ON trigger_fire (at);
