-- The engine's tables. `job_chunk` is the hot one: narrow, with only the indexes that claiming,
-- reading and sweeping need. It has no foreign key to `job`: jobs and chunks are inserted in one
-- transaction and pruned chunks first, and a key check per row would cost a third of a large submission.

CREATE TABLE meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO meta (name, value) VALUES ('installation', left(replace(gen_random_uuid()::text, '-', ''), 8));

CREATE TABLE job (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id          text NOT NULL UNIQUE,
    job_type        text NOT NULL,
    dataset         text,
    owner           text NOT NULL,
    idempotency_key text,
    request_hash    text,
    request         jsonb NOT NULL,
    params          jsonb NOT NULL,
    status          text NOT NULL DEFAULT 'SUBMITTED'
                    CHECK (status IN ('SUBMITTED', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELLED')),
    on_failure      text NOT NULL CHECK (on_failure IN ('stop', 'continue')),
    priority        smallint NOT NULL,
    labels          jsonb NOT NULL,
    base_path       text,
    run_at          timestamptz,
    waits_for       integer NOT NULL DEFAULT 0,
    total           integer NOT NULL,
    done            integer NOT NULL DEFAULT 0,
    failed          integer NOT NULL DEFAULT 0,
    cancelled       integer NOT NULL DEFAULT 0,
    reused          integer NOT NULL DEFAULT 0,
    rows            bigint NOT NULL DEFAULT 0,
    bytes           bigint NOT NULL DEFAULT 0,
    version         bigint NOT NULL DEFAULT 1,
    error_message   text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    started_at      timestamptz,
    completed_at    timestamptz,
    -- When its counts were last looked at and found right.
    checked_at      timestamptz,
    -- Set when pruning begins: from then on nobody sees or redrives the job.
    pruned_at       timestamptz
) WITH (fillfactor = 80);

CREATE UNIQUE INDEX job_idempotency ON job (owner, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX job_status ON job (status, id);
CREATE INDEX job_created ON job (created_at);
-- Jobs that sweeps must look at: unfinished ones, and failed or cancelled ones that still settle.
CREATE INDEX job_open ON job (id) WHERE completed_at IS NULL;
CREATE INDEX job_completed ON job (completed_at) WHERE completed_at IS NOT NULL AND pruned_at IS NULL;
CREATE INDEX job_pruned ON job (id) WHERE pruned_at IS NOT NULL;

CREATE TABLE queue (
    id             integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           text NOT NULL UNIQUE,
    max_concurrent integer,
    paused         boolean NOT NULL DEFAULT false
);

CREATE TABLE worker (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host         text NOT NULL,
    roles        text NOT NULL,
    concurrency  integer NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- One row per unit of a queue's budget, leased to a worker process.
CREATE TABLE queue_slot (
    queue_id    integer NOT NULL REFERENCES queue (id),
    slot        integer NOT NULL,
    worker_id   bigint,
    lease_until timestamptz,
    PRIMARY KEY (queue_id, slot)
) WITH (fillfactor = 50);

CREATE TABLE job_chunk (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id         bigint NOT NULL,
    fence          bigint NOT NULL DEFAULT 0,
    worker_id      bigint,
    turn           timestamptz,
    run_at         timestamptz,
    lease_until    timestamptz,
    started_at     timestamptz,
    completed_at   timestamptz,
    position       integer NOT NULL,
    queue_id       integer NOT NULL,
    attempt        integer NOT NULL DEFAULT 0,
    waits_for      integer NOT NULL DEFAULT 0,
    effective_date date,
    priority       smallint NOT NULL,
    returned       smallint NOT NULL DEFAULT 0,
    lost           smallint NOT NULL DEFAULT 0,
    held           boolean NOT NULL DEFAULT false,
    state          text NOT NULL
                   CHECK (state IN ('CREATED', 'QUEUED', 'RUNNING', 'RETRY', 'SUCCESS', 'DEAD', 'CANCELLED')),
    chunk_key      text NOT NULL,
    key            text,
    error_message  text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05);

CREATE UNIQUE INDEX chunk_of_job ON job_chunk (job_id, chunk_key);
CREATE INDEX chunk_claim ON job_chunk (queue_id, priority DESC, turn, id) WHERE state = 'QUEUED';
-- The lease is in no index, so that a heartbeat rewrites no index entry.
CREATE INDEX chunk_running ON job_chunk (job_id) WHERE state = 'RUNNING';
-- For holding, cancelling and settling: what of an ended job is not settled yet.
CREATE INDEX chunk_pending ON job_chunk (job_id, held) WHERE state IN ('CREATED', 'QUEUED', 'RETRY');
CREATE INDEX chunk_due ON job_chunk (run_at) WHERE state IN ('CREATED', 'RETRY') AND NOT held AND waits_for = 0;

-- One row per identity. Generation 0: never published. At most one running chunk is the writer.
CREATE TABLE file_cache (
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
) WITH (fillfactor = 80);

-- Identities with a writer: the running ones, and what dead writers left for the sweep.
CREATE INDEX file_writer ON file_cache (id) WHERE writer_chunk IS NOT NULL;

-- The file that a finished chunk made or reused, as it was then: a job's manifest.
CREATE TABLE chunk_file (
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

-- A job as it is shown. `running` is counted over the index of running chunks, so that it costs the
-- same for 10 chunks and for 1,000,000, and claims never touch the job's row.
CREATE VIEW job_view AS
SELECT j.id, j.job_id, j.job_type, j.dataset, j.owner, j.status AS stored_status,
       CASE WHEN j.status = 'SUBMITTED' AND r.running > 0 THEN 'IN_PROGRESS' ELSE j.status END AS status,
       j.on_failure, j.priority, j.labels, j.base_path, j.error_message,
       j.total, r.running, j.done, j.failed, j.cancelled, j.reused, j.rows, j.bytes, j.version,
       j.run_at, j.created_at, j.updated_at, COALESCE(j.started_at, r.started_at) AS started_at, j.completed_at,
       j.idempotency_key, j.request_hash
FROM job j
CROSS JOIN LATERAL (
    SELECT count(*) AS running, min(c.started_at) AS started_at
    FROM job_chunk c
    WHERE c.job_id = j.id AND c.state = 'RUNNING'
) r
WHERE j.pruned_at IS NULL;
