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

CREATE TABLE audit (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    actor  TEXT    NOT NULL,
    act    TEXT    NOT NULL,
    job_id TEXT,
    detail TEXT
) STRICT;

CREATE TABLE base_path (
    path        TEXT PRIMARY KEY,
    dataset     TEXT NOT NULL,
    recorded_at INTEGER NOT NULL
) STRICT;

CREATE TABLE chunk_file (
    chunk_id     INTEGER PRIMARY KEY REFERENCES job_chunk (id) ON DELETE CASCADE,
    file_id      INTEGER NOT NULL,
    path         TEXT    NOT NULL,
    rows         INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    sha256       TEXT    NOT NULL,
    etag         TEXT,
    format       TEXT    NOT NULL,
    reused       INTEGER NOT NULL,
    reason       TEXT    NOT NULL,
    generated_at INTEGER NOT NULL,
    generation   INTEGER NOT NULL
) STRICT;

CREATE TABLE chunk_history (
    id         INTEGER PRIMARY KEY,
    chunk_id   INTEGER NOT NULL REFERENCES job_chunk (id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    worker_id  INTEGER,
    attempt    INTEGER NOT NULL,
    from_state TEXT    NOT NULL,
    to_state   TEXT    NOT NULL,
    step       TEXT,
    cause      TEXT
) STRICT;

CREATE TABLE chunk_progress (
    chunk_id   INTEGER PRIMARY KEY REFERENCES job_chunk (id) ON DELETE CASCADE,
    job_id     INTEGER NOT NULL,
    rows       INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    fraction   REAL    NOT NULL,
    updated_at INTEGER NOT NULL,
    -- How often the row was written.
    reports    INTEGER NOT NULL DEFAULT 1
) STRICT;

CREATE TABLE file_cache (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    dataset           TEXT    NOT NULL,
    scope             TEXT    NOT NULL,
    key               TEXT    NOT NULL,
    effective_date    TEXT    NOT NULL,
    variant           TEXT    NOT NULL,
    path              TEXT,
    rows              INTEGER,
    bytes             INTEGER,
    sha256            TEXT,
    etag              TEXT,
    format            TEXT,
    definition        TEXT,
    -- 0: nothing is published yet, and the columns above are empty.
    generation        INTEGER NOT NULL DEFAULT 0,
    created_at        INTEGER NOT NULL,
    last_generated_at INTEGER,
    claimed_at        INTEGER,
    job_id            TEXT,
    writer_chunk      INTEGER,
    writer_fence      INTEGER,
    upload_path       TEXT,
    upload_id         TEXT,
    UNIQUE (dataset, scope, key, effective_date, variant)
) STRICT;

CREATE TABLE job (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id          TEXT    NOT NULL UNIQUE,
    job_type        TEXT    NOT NULL,
    dataset         TEXT,
    owner           TEXT    NOT NULL,
    idempotency_key TEXT,
    request_hash    TEXT,
    request         TEXT    NOT NULL,
    params          TEXT    NOT NULL,
    status          TEXT    NOT NULL
        CHECK (status IN ('SUBMITTED', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELLED')),
    on_failure      TEXT    NOT NULL CHECK (on_failure IN ('stop', 'continue')),
    priority        INTEGER NOT NULL,
    labels          TEXT    NOT NULL,
    base_path       TEXT,
    run_at          INTEGER,
    waits_for       INTEGER NOT NULL DEFAULT 0,
    total           INTEGER NOT NULL,
    done            INTEGER NOT NULL DEFAULT 0,
    failed          INTEGER NOT NULL DEFAULT 0,
    cancelled       INTEGER NOT NULL DEFAULT 0,
    reused          INTEGER NOT NULL DEFAULT 0,
    rows            INTEGER NOT NULL DEFAULT 0,
    bytes           INTEGER NOT NULL DEFAULT 0,
    version         INTEGER NOT NULL DEFAULT 1,
    error_message   TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    started_at      INTEGER,
    completed_at    INTEGER,
    -- When its counts were last looked at and found right.
    checked_at      INTEGER,
    -- Set when pruning begins: from then on nobody sees or redrives the job.
    pruned_at       INTEGER,
    unique_key      TEXT,
    -- JSON text, as the job left it.
    result          TEXT,
    on_parent_failure TEXT  NOT NULL DEFAULT 'hold' CHECK (on_parent_failure IN ('hold', 'cancel', 'run', 'fail')),
    -- JSON text: what was kept of a verified token.
    identity        TEXT,
    department      TEXT,
    scope           TEXT    NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE job_chunk (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id         INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    chunk_key      TEXT    NOT NULL,
    queue_id       INTEGER NOT NULL,
    key            TEXT,
    effective_date TEXT,
    state          TEXT    NOT NULL
        CHECK (state IN ('CREATED', 'QUEUED', 'RUNNING', 'RETRY', 'SUCCESS', 'DEAD', 'CANCELLED')),
    priority       INTEGER NOT NULL,
    turn           INTEGER,
    attempt        INTEGER NOT NULL DEFAULT 0,
    fence          INTEGER NOT NULL DEFAULT 0,
    returned       INTEGER NOT NULL DEFAULT 0,
    lost           INTEGER NOT NULL DEFAULT 0,
    held           INTEGER NOT NULL DEFAULT 0,
    waits_for      INTEGER NOT NULL DEFAULT 0,
    run_at         INTEGER,
    lease_until    INTEGER,
    worker_id      INTEGER,
    started_at     INTEGER,
    completed_at   INTEGER,
    error_message  TEXT,
    -- The step that failed last, and when the chunk first failed since it was submitted or redriven.
    step           TEXT,
    first_failed_at INTEGER,
    -- What operators are told of the last failure where it says more than `error_message`, which everybody who may see
    -- the job reads: addresses, paths and settings. Read of DEAD chunks only.
    error_detail   TEXT
) STRICT;

CREATE TABLE job_parent (
    child_id  INTEGER NOT NULL REFERENCES job (id) ON DELETE CASCADE,
    parent_id INTEGER NOT NULL,
    settled   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (child_id, parent_id)
) STRICT;

CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE outbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id  TEXT    NOT NULL UNIQUE,
    body        TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    -- Handed to a relay until then.
    taken_until INTEGER
) STRICT;

CREATE TABLE queue (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    name           TEXT    NOT NULL UNIQUE,
    max_concurrent INTEGER,
    paused         INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE queue_slot (
    queue_id    INTEGER NOT NULL REFERENCES queue (id),
    slot        INTEGER NOT NULL,
    worker_id   INTEGER,
    lease_until INTEGER,
    PRIMARY KEY (queue_id, slot)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE schedule_slot (
    schedule_id INTEGER NOT NULL REFERENCES schedule (id) ON DELETE CASCADE,
    slot        INTEGER NOT NULL,
    outcome     TEXT    NOT NULL CHECK (outcome IN ('fired', 'skipped', 'missed', 'refused')),
    job_id      TEXT,
    detail      TEXT,
    at          INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, slot)
) STRICT;

CREATE TABLE step (
    chunk_id     INTEGER NOT NULL REFERENCES job_chunk (id) ON DELETE CASCADE,
    name         TEXT    NOT NULL,
    fence        INTEGER NOT NULL,
    completed_at INTEGER NOT NULL,
    result       TEXT    NOT NULL,
    PRIMARY KEY (chunk_id, name)
) STRICT;

CREATE TABLE trigger_arrival (
    trigger_id   INTEGER NOT NULL REFERENCES trigger_rule (id) ON DELETE CASCADE,
    value        TEXT    NOT NULL,
    term         TEXT    NOT NULL,
    job_id       TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    completed_at INTEGER NOT NULL,
    PRIMARY KEY (trigger_id, value, term, job_id)
) STRICT;

CREATE TABLE trigger_due (
    job_id       INTEGER PRIMARY KEY,
    term         TEXT    NOT NULL,
    completed_at INTEGER NOT NULL
) STRICT;

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

CREATE TABLE worker (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    host         TEXT    NOT NULL,
    roles        TEXT    NOT NULL,
    concurrency  INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL
) STRICT;

CREATE INDEX audit_at ON audit (at);

CREATE INDEX audit_of_actor ON audit (actor, id DESC);

CREATE INDEX audit_of_job ON audit (job_id, id DESC) WHERE job_id IS NOT NULL;

CREATE INDEX chunk_claim ON job_chunk (queue_id, priority DESC, turn, id) WHERE state = 'QUEUED';

CREATE INDEX chunk_dead ON job_chunk (completed_at, id) WHERE state = 'DEAD';

CREATE INDEX chunk_due ON job_chunk (coalesce(run_at, 0))
    WHERE state IN ('CREATED', 'RETRY') AND held = 0 AND waits_for = 0;

CREATE UNIQUE INDEX chunk_of_job ON job_chunk (job_id, chunk_key);

CREATE INDEX chunk_pending ON job_chunk (job_id, held) WHERE state IN ('CREATED', 'QUEUED', 'RETRY');

CREATE INDEX chunk_running ON job_chunk (job_id) WHERE state = 'RUNNING';

CREATE INDEX file_writer ON file_cache (id) WHERE writer_chunk IS NOT NULL;

CREATE INDEX history_of_chunk ON chunk_history (chunk_id);

CREATE INDEX job_closing ON job (id) WHERE completed_at IS NULL AND status IN ('FAILED', 'CANCELLED');

CREATE INDEX job_completed ON job (completed_at) WHERE completed_at IS NOT NULL AND pruned_at IS NULL;

CREATE UNIQUE INDEX job_idempotency ON job (owner, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE INDEX job_of_department ON job (department, id DESC) WHERE department IS NOT NULL;

CREATE INDEX job_of_owner ON job (owner, id DESC);

CREATE INDEX job_open ON job (updated_at) WHERE completed_at IS NULL;

CREATE INDEX job_open_of_owner ON job (owner) WHERE status IN ('SUBMITTED', 'IN_PROGRESS');

CREATE INDEX job_pruned ON job (id) WHERE pruned_at IS NOT NULL;

CREATE UNIQUE INDEX job_unique ON job (job_type, unique_key)
    WHERE unique_key IS NOT NULL AND status IN ('SUBMITTED', 'IN_PROGRESS');

CREATE INDEX parent_of_job ON job_parent (parent_id) WHERE settled = 0;

CREATE INDEX progress_of_job ON chunk_progress (job_id);

CREATE INDEX schedule_due ON schedule (fire_at) WHERE paused = 0;

CREATE INDEX schedule_slot_at ON schedule_slot (at);

CREATE INDEX trigger_arrival_at ON trigger_arrival (completed_at);

CREATE INDEX trigger_arrival_newest ON trigger_arrival (trigger_id, value, term, completed_at);

CREATE INDEX trigger_due_in_order ON trigger_due (completed_at, job_id);

CREATE INDEX trigger_fire_at ON trigger_fire (at);

CREATE INDEX trigger_fire_due ON trigger_fire (id) WHERE state = 'due';

CREATE INDEX trigger_fire_of_rule ON trigger_fire (trigger_id, id);

CREATE VIEW job_view AS
SELECT j.id, j.job_id, j.job_type, j.dataset, j.owner,
       CASE WHEN j.status = 'SUBMITTED'
                 AND EXISTS (SELECT 1 FROM job_chunk AS c WHERE c.job_id = j.id AND c.state = 'RUNNING')
            THEN 'IN_PROGRESS' ELSE j.status END AS status,
       j.on_failure, j.priority, j.labels, j.base_path, j.error_message, j.total,
       (SELECT count(*) FROM job_chunk AS c WHERE c.job_id = j.id AND c.state = 'RUNNING') AS running,
       j.done, j.failed, j.cancelled, j.reused, j.rows, j.bytes, j.version,
       j.run_at, j.created_at, j.updated_at,
       coalesce(j.started_at, (SELECT min(c.started_at) FROM job_chunk AS c
                               WHERE c.job_id = j.id AND c.state = 'RUNNING')) AS started_at,
       j.completed_at,
       (SELECT coalesce(sum(p.rows), 0) FROM chunk_progress AS p WHERE p.job_id = j.id) AS moving_rows,
       (SELECT coalesce(sum(p.bytes), 0) FROM chunk_progress AS p WHERE p.job_id = j.id) AS moving_bytes,
       (SELECT total(p.fraction) FROM chunk_progress AS p WHERE p.job_id = j.id) AS moving_chunks,
       j.identity, j.department, j.scope,
       (j.version << 32)
       + (SELECT count(*) FROM job_chunk AS c WHERE c.job_id = j.id AND c.state = 'RUNNING')
       + (SELECT coalesce(sum(p.reports), 0) FROM chunk_progress AS p WHERE p.job_id = j.id) AS shown_version
FROM job AS j
WHERE j.pruned_at IS NULL;
