-- The tables of the engine. Three rules keep the hot ones fast:
-- columns that change lie next to each other, so that the log of an update holds only them;
-- pages have room, so that a new version of a row lies beside the old one;
-- few indexes are without a condition, because each of them gets an entry with every update.
-- A statement that is to use a partial index repeats its condition word for word.

CREATE TABLE outhaul.meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO outhaul.meta (name, value)
VALUES ('installation', left(replace(gen_random_uuid()::text, '-', ''), 8));

CREATE TABLE outhaul.job (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id            text NOT NULL UNIQUE,
    job_type          text NOT NULL,
    dataset           text,
    owner             text NOT NULL,
    department        text,
    scope             text NOT NULL DEFAULT '',
    -- JSON text: what was kept of a verified token.
    identity          text,
    idempotency_key   text,
    request_hash      text,
    unique_key        text,
    request           jsonb NOT NULL,
    -- JSON as text, because JSON may hold what jsonb refuses (\u0000) or rounds.
    params            text NOT NULL,
    labels            jsonb NOT NULL,
    base_path         text,
    on_failure        text NOT NULL CHECK (on_failure IN ('stop', 'continue')),
    on_parent_failure text NOT NULL DEFAULT 'hold' CHECK (on_parent_failure IN ('hold', 'cancel', 'run', 'fail')),
    run_at            timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now(),
    total             integer NOT NULL,
    -- What changes begins here.
    priority          smallint NOT NULL,
    status            text NOT NULL DEFAULT 'SUBMITTED'
                      CHECK (status IN ('SUBMITTED', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELLED')),
    done              integer NOT NULL DEFAULT 0,
    failed            integer NOT NULL DEFAULT 0,
    cancelled         integer NOT NULL DEFAULT 0,
    reused            integer NOT NULL DEFAULT 0,
    rows              bigint NOT NULL DEFAULT 0,
    bytes             bigint NOT NULL DEFAULT 0,
    version           bigint NOT NULL DEFAULT 1,
    updated_at        timestamptz NOT NULL DEFAULT now(),
    started_at        timestamptz,
    completed_at      timestamptz,
    -- How many of its rows in job_parent are not settled. Only the statement that settles them lowers it.
    waits_for         integer NOT NULL DEFAULT 0,
    -- Set when the job waits for nothing more: what is to become of its chunks, which follow in batches.
    released          text CHECK (released IN ('queue', 'fail')),
    -- When the counts were last compared with the chunks and found right.
    checked_at        timestamptz,
    -- Set when pruning begins: from then on nobody sees or redrives the job.
    pruned_at         timestamptz,
    error_message     text,
    -- JSON text.
    result            text
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX job_idempotency ON outhaul.job (owner, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- Of jobs that may be there only once, one is unfinished at most.
CREATE UNIQUE INDEX job_unique ON outhaul.job (job_type, unique_key)
    WHERE unique_key IS NOT NULL AND status IN ('SUBMITTED', 'IN_PROGRESS');
CREATE INDEX job_open ON outhaul.job (id) WHERE status IN ('SUBMITTED', 'IN_PROGRESS');
-- Failed and cancelled jobs whose chunks are still to be held, cancelled or waited for.
CREATE INDEX job_closing ON outhaul.job (id) WHERE status IN ('FAILED', 'CANCELLED') AND completed_at IS NULL;
CREATE INDEX job_ended ON outhaul.job (status, id) WHERE status IN ('COMPLETED', 'FAILED', 'CANCELLED');
CREATE INDEX job_released ON outhaul.job (id) WHERE released IS NOT NULL;
CREATE INDEX job_pruned ON outhaul.job (id) WHERE pruned_at IS NOT NULL;
-- What callers see of their own and their department's jobs, newest first; and what an owner has open.
CREATE INDEX job_of_owner ON outhaul.job (owner, id DESC) WHERE owner <> 'anonymous';
CREATE INDEX job_of_department ON outhaul.job (department, id DESC) WHERE department IS NOT NULL;
CREATE INDEX job_open_of_owner ON outhaul.job (owner)
    WHERE owner <> 'anonymous' AND status IN ('SUBMITTED', 'IN_PROGRESS');
CREATE INDEX job_created ON outhaul.job USING brin (created_at) WITH (pages_per_range = 16, autosummarize = on);

CREATE TABLE outhaul.queue (
    id             integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           text NOT NULL UNIQUE,
    max_concurrent integer,
    paused         boolean NOT NULL DEFAULT false
);

CREATE TABLE outhaul.worker (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host         text NOT NULL,
    roles        text NOT NULL,
    concurrency  integer NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- One row per unit of a queue's budget, leased to a worker process.
CREATE TABLE outhaul.queue_slot (
    queue_id    integer NOT NULL REFERENCES outhaul.queue (id),
    slot        integer NOT NULL,
    worker_id   bigint,
    lease_until timestamptz,
    PRIMARY KEY (queue_id, slot)
) WITH (fillfactor = 50);

-- The hot table. It has no foreign key to `job`: jobs and chunks are inserted in one transaction, chunks are pruned
-- first, and a key check per row would cost a third of a large submission.
CREATE TABLE outhaul.job_chunk (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id          bigint NOT NULL,
    position        integer NOT NULL,
    queue_id        integer NOT NULL,
    waits_for       integer NOT NULL DEFAULT 0,
    effective_date  date,
    chunk_key       text NOT NULL,
    key             text,
    -- What changes begins here. The lease is in no index, so that a heartbeat writes no index entry.
    turn            timestamptz,
    fence           bigint NOT NULL DEFAULT 0,
    worker_id       bigint,
    lease_until     timestamptz,
    started_at      timestamptz,
    completed_at    timestamptz,
    run_at          timestamptz,
    attempt         integer NOT NULL DEFAULT 0,
    priority        smallint NOT NULL,
    returned        smallint NOT NULL DEFAULT 0,
    lost            smallint NOT NULL DEFAULT 0,
    held            boolean NOT NULL DEFAULT false,
    state           text NOT NULL
                    CHECK (state IN ('CREATED', 'QUEUED', 'RUNNING', 'RETRY', 'SUCCESS', 'DEAD', 'CANCELLED')),
    -- When the chunk first failed since it was submitted or redriven, the step that failed last, and why.
    first_failed_at timestamptz,
    step            text,
    error_message   text,
    -- What operators are told of the last failure where it says more than `error_message`, which everybody who may see
    -- the job reads: addresses, paths and settings. Read of DEAD chunks only.
    error_detail    text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05);

CREATE UNIQUE INDEX chunk_of_job ON outhaul.job_chunk (job_id, chunk_key);
CREATE INDEX chunk_claim ON outhaul.job_chunk (queue_id, priority DESC, turn, id) WHERE state = 'QUEUED';
CREATE INDEX chunk_running ON outhaul.job_chunk (job_id) WHERE state = 'RUNNING';
-- For holding, cancelling and settling: what of an ended job is not settled yet.
CREATE INDEX chunk_pending ON outhaul.job_chunk (job_id, held) WHERE state IN ('CREATED', 'QUEUED', 'RETRY');
CREATE INDEX chunk_due ON outhaul.job_chunk (run_at)
    WHERE state IN ('CREATED', 'RETRY') AND NOT held AND waits_for = 0;
CREATE INDEX chunk_dead ON outhaul.job_chunk (completed_at, id) WHERE state = 'DEAD';

-- One row per file identity. Generation 0: never published. At most one running chunk is the writer.
CREATE TABLE outhaul.file_cache (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset           text NOT NULL,
    scope             text NOT NULL,
    key               text NOT NULL,
    effective_date    date NOT NULL,
    variant           text NOT NULL,
    generation        bigint NOT NULL DEFAULT 0,
    path              text,
    rows              bigint,
    bytes             bigint,
    sha256            text,
    etag              text,
    format            text,
    definition        text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    last_generated_at timestamptz,
    claimed_at        timestamptz,
    job_id            text,
    writer_chunk      bigint,
    writer_fence      bigint,
    upload_path       text,
    upload_id         text,
    UNIQUE (dataset, scope, key, effective_date, variant)
) WITH (fillfactor = 50);

-- Identities with a writer: the running ones, and what dead writers left for the sweep.
CREATE INDEX file_writer ON outhaul.file_cache (id) WHERE writer_chunk IS NOT NULL;

-- The file that a finished chunk made or reused, as it was then: a job's manifest.
CREATE TABLE outhaul.chunk_file (
    chunk_id     bigint PRIMARY KEY,
    file_id      bigint NOT NULL,
    generation   bigint NOT NULL,
    rows         bigint NOT NULL,
    bytes        bigint NOT NULL,
    generated_at timestamptz NOT NULL,
    reused       boolean NOT NULL,
    path         text NOT NULL,
    sha256       text NOT NULL,
    etag         text,
    format       text NOT NULL,
    reason       text NOT NULL
);

-- Whose a base path is: the dataset that published there first. Rows are never changed or deleted, so that no dataset
-- ever publishes over another's files, whatever a configuration says.
CREATE TABLE outhaul.base_path (
    path        text PRIMARY KEY,
    dataset     text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now()
);

-- Finished steps: the recovery points of a chunk. The key makes sure that none is recorded twice.
CREATE TABLE outhaul.step (
    chunk_id     bigint NOT NULL,
    name         text NOT NULL,
    fence        bigint NOT NULL,
    completed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    result       text NOT NULL,
    PRIMARY KEY (chunk_id, name)
);

-- Transitions, append-only. The insertion, the first claim and SUCCESS are not here: the chunk's own row tells of
-- them, so that a chunk that simply succeeds writes no history.
CREATE TABLE outhaul.chunk_history (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    chunk_id   bigint NOT NULL,
    at         timestamptz NOT NULL,
    worker_id  bigint,
    attempt    integer NOT NULL,
    from_state text NOT NULL,
    to_state   text NOT NULL,
    step       text,
    cause      text
);
CREATE INDEX history_of_chunk ON outhaul.chunk_history (chunk_id);

-- How far chunks are that run longer than a moment. A row goes when its chunk is settled: what was done is in the
-- job's counts then. `reports` counts how often the row was written.
CREATE TABLE outhaul.chunk_progress (
    chunk_id   bigint PRIMARY KEY,
    job_id     bigint NOT NULL,
    rows       bigint NOT NULL,
    bytes      bigint NOT NULL,
    fraction   double precision NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    reports    bigint NOT NULL DEFAULT 1
) WITH (fillfactor = 50);
CREATE INDEX progress_of_job ON outhaul.chunk_progress (job_id);

-- Jobs that wait for others.
CREATE TABLE outhaul.job_parent (
    child_id  bigint NOT NULL,
    parent_id bigint NOT NULL,
    settled   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (child_id, parent_id)
);
CREATE INDEX parent_of_job ON outhaul.job_parent (parent_id) WHERE NOT settled;
CREATE INDEX wait_of_job ON outhaul.job_parent (child_id, parent_id) WHERE NOT settled;

-- A job as it is shown. `running` is counted over the index of running chunks, so that it costs the same for 10 chunks
-- and for 1,000,000, and claims never touch the job's row.
-- `shown_version` moves with everything that is shown. Claims and progress leave the job's row alone, so what they
-- change is added to the row's version, which counts in steps of 2^32: every statement that takes a chunk out of
-- RUNNING, or settles it, raises the row's version, and so outweighs all that it takes away.
CREATE VIEW outhaul.job_view AS
SELECT j.id, j.job_id, j.job_type, j.dataset, j.owner, j.status AS stored_status,
       CASE WHEN j.status = 'SUBMITTED' AND r.running > 0 THEN 'IN_PROGRESS' ELSE j.status END AS status,
       j.on_failure, j.priority, j.labels, j.base_path, j.error_message,
       j.total, r.running, j.done, j.failed, j.cancelled, j.reused, j.rows, j.bytes, j.version,
       j.run_at, j.created_at, j.updated_at, COALESCE(j.started_at, r.started_at) AS started_at, j.completed_at,
       j.idempotency_key, j.request_hash, m.rows AS moving_rows, m.bytes AS moving_bytes, m.chunks AS moving_chunks,
       j.identity, j.department, j.scope, (j.version << 32) + r.running + m.reports AS shown_version
FROM outhaul.job j
CROSS JOIN LATERAL (
    SELECT count(*) AS running, min(c.started_at) AS started_at
    FROM outhaul.job_chunk c
    WHERE c.job_id = j.id AND c.state = 'RUNNING'
) r
CROSS JOIN LATERAL (
    -- The row of a chunk that has just settled counts no more.
    SELECT COALESCE(sum(p.rows), 0)::bigint AS rows, COALESCE(sum(p.bytes), 0)::bigint AS bytes,
           COALESCE(sum(p.fraction), 0) AS chunks, COALESCE(sum(p.reports), 0)::bigint AS reports
    FROM outhaul.chunk_progress p
    JOIN outhaul.job_chunk c ON c.id = p.chunk_id
    WHERE p.job_id = j.id AND c.state IN ('CREATED', 'QUEUED', 'RUNNING', 'RETRY')
) m
WHERE j.pruned_at IS NULL;

-- Jobs that are submitted by the clock. `next_slot` is the slot a schedule waits for, and the guard of its
-- firing; `fire_at` is that slot and its share of the jitter.
CREATE TABLE outhaul.schedule (
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
CREATE INDEX schedule_due ON outhaul.schedule (fire_at) WHERE NOT paused;

-- What became of each slot; whoever inserts the row has fired it.
CREATE TABLE outhaul.schedule_slot (
    schedule_id bigint NOT NULL REFERENCES outhaul.schedule ON DELETE CASCADE,
    slot        timestamptz NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('fired', 'skipped', 'missed', 'refused')),
    job_id      text,
    detail      text,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (schedule_id, slot)
);
CREATE INDEX schedule_slot_at ON outhaul.schedule_slot (at);

-- Jobs that are submitted when others have completed.
CREATE TABLE outhaul.trigger_rule (
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
CREATE INDEX trigger_rule_after ON outhaul.trigger_rule USING gin (after_terms);

-- Jobs that completed and that some trigger asks for, written by the statement that completed them.
CREATE TABLE outhaul.trigger_due (
    job_id       bigint PRIMARY KEY,
    term         text NOT NULL,
    completed_at timestamptz NOT NULL
);
CREATE INDEX trigger_due_in_order ON outhaul.trigger_due (completed_at, job_id);

-- Completed jobs by what they answer to; the newest of each term make a set.
CREATE TABLE outhaul.trigger_arrival (
    trigger_id   bigint NOT NULL REFERENCES outhaul.trigger_rule ON DELETE CASCADE,
    value        text NOT NULL,
    term         text NOT NULL,
    job_id       text NOT NULL,
    owner        text NOT NULL,
    completed_at timestamptz NOT NULL,
    PRIMARY KEY (trigger_id, value, term, job_id)
);
CREATE INDEX trigger_arrival_newest ON outhaul.trigger_arrival (trigger_id, value, term, completed_at, job_id);
CREATE INDEX trigger_arrival_of ON outhaul.trigger_arrival (trigger_id, completed_at);
CREATE INDEX trigger_arrival_at ON outhaul.trigger_arrival (completed_at);

-- A set fires once: whoever inserts the row makes it due, whoever takes it out of 'due' submits the job.
CREATE TABLE outhaul.trigger_fire (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trigger_id bigint NOT NULL REFERENCES outhaul.trigger_rule ON DELETE CASCADE,
    value      text NOT NULL,
    parents    text[] NOT NULL,
    state      text NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'fired', 'refused')),
    job_id     text,
    detail     text,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (trigger_id, value, parents)
);
CREATE INDEX trigger_fire_of ON outhaul.trigger_fire (trigger_id, id);
CREATE INDEX trigger_fire_due ON outhaul.trigger_fire (id) WHERE state = 'due';
CREATE INDEX trigger_fire_at ON outhaul.trigger_fire (at);

-- Who did what; append-only, and kept longer than jobs.
CREATE TABLE outhaul.audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor  text NOT NULL,
    act    text NOT NULL,
    job_id text,
    detail text
);
CREATE INDEX audit_at ON outhaul.audit (at);
CREATE INDEX audit_of_actor ON outhaul.audit (actor, id DESC);
CREATE INDEX audit_of_job ON outhaul.audit (job_id, id DESC) WHERE job_id IS NOT NULL;

-- One row per QUEUED chunk whose message is on its way. It counts while the chunk is QUEUED under this
-- fence and `until` lies ahead; at most `delivery.window` of a queue do.
CREATE TABLE outhaul.announcement (
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
CREATE TABLE outhaul.outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id  text NOT NULL UNIQUE,
    body        text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    -- Handed to a relay until then.
    taken_until timestamptz
) WITH (fillfactor = 70);
