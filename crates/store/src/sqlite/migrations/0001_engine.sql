-- The engine: jobs, their chunks, the files they made, queues with their budget slots, workers.
-- Times are microseconds since the epoch, dates are 'YYYY-MM-DD', JSON is text, booleans are 0 and 1.

CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

INSERT INTO meta (name, value) VALUES ('installation', lower(hex(randomblob(4))));

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

CREATE TABLE worker (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    host         TEXT    NOT NULL,
    roles        TEXT    NOT NULL,
    concurrency  INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL
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
    pruned_at       INTEGER
) STRICT;

CREATE UNIQUE INDEX job_idempotency ON job (owner, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- Count repair looks at what has not moved for long.
CREATE INDEX job_open ON job (updated_at) WHERE completed_at IS NULL;
-- Jobs that ended while chunks of theirs still have to be stopped, held or cancelled.
CREATE INDEX job_closing ON job (id) WHERE completed_at IS NULL AND status IN ('FAILED', 'CANCELLED');
CREATE INDEX job_completed ON job (completed_at) WHERE completed_at IS NOT NULL AND pruned_at IS NULL;
CREATE INDEX job_pruned ON job (id) WHERE pruned_at IS NOT NULL;

-- No foreign keys: jobs and chunks are inserted in one transaction and pruned chunks first, and queues stay.
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
    error_message  TEXT
) STRICT;

CREATE UNIQUE INDEX chunk_of_job ON job_chunk (job_id, chunk_key);
-- The order of claims.
CREATE INDEX chunk_claim ON job_chunk (queue_id, priority DESC, turn, id) WHERE state = 'QUEUED';
CREATE INDEX chunk_running ON job_chunk (job_id) WHERE state = 'RUNNING';
-- What the stager queues when its time comes; held chunks are not in it, however many there are.
CREATE INDEX chunk_due ON job_chunk (coalesce(run_at, 0))
    WHERE state IN ('CREATED', 'RETRY') AND held = 0 AND waits_for = 0;
-- What the stager holds or cancels when its job ended.
CREATE INDEX chunk_pending ON job_chunk (job_id, held) WHERE state IN ('CREATED', 'QUEUED', 'RETRY');

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

-- Identities with a writer: the running ones, and what dead writers left for the sweep.
CREATE INDEX file_writer ON file_cache (id) WHERE writer_chunk IS NOT NULL;

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

-- A job as it is shown. `running` is counted over the index of running chunks, so that it costs the
-- same for 10 chunks and for 1,000,000, and claims never touch the job's row.
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
       j.completed_at
FROM job AS j
WHERE j.pruned_at IS NULL;
