CREATE TABLE outhaul.announcement (
    chunk_id bigint NOT NULL,
    fence bigint NOT NULL,
    until timestamp with time zone NOT NULL,
    queue_id integer NOT NULL,
    times smallint DEFAULT 0 NOT NULL,
    waits smallint DEFAULT 0 NOT NULL,
    standing text DEFAULT 'held'::text NOT NULL,
    CONSTRAINT announcement_pkey PRIMARY KEY (chunk_id),
    CONSTRAINT announcement_standing_check CHECK ((standing = ANY (ARRAY['held'::text, 'sent'::text, 'deferred'::text])))
) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);

CREATE TABLE outhaul.audit (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    actor text NOT NULL,
    act text NOT NULL,
    job_id text,
    detail text,
    CONSTRAINT audit_pkey PRIMARY KEY (id)
);

CREATE TABLE outhaul.base_path (
    path text NOT NULL,
    dataset text NOT NULL,
    recorded_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT base_path_pkey PRIMARY KEY (path)
);

CREATE TABLE outhaul.chunk_file (
    chunk_id bigint NOT NULL,
    file_id bigint NOT NULL,
    generation bigint NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    generated_at timestamp with time zone NOT NULL,
    reused boolean NOT NULL,
    path text NOT NULL,
    sha256 text NOT NULL,
    etag text,
    format text NOT NULL,
    reason text NOT NULL,
    CONSTRAINT chunk_file_pkey PRIMARY KEY (chunk_id)
);

CREATE TABLE outhaul.chunk_history (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    chunk_id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    worker_id bigint,
    attempt integer NOT NULL,
    from_state text NOT NULL,
    to_state text NOT NULL,
    step text,
    cause text,
    CONSTRAINT chunk_history_pkey PRIMARY KEY (id)
);

CREATE TABLE outhaul.chunk_progress (
    chunk_id bigint NOT NULL,
    job_id bigint NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    fraction double precision NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    reports bigint DEFAULT 1 NOT NULL,
    CONSTRAINT chunk_progress_pkey PRIMARY KEY (chunk_id)
) WITH (fillfactor=50);

CREATE TABLE outhaul.file_cache (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    dataset text NOT NULL,
    scope text NOT NULL,
    key text NOT NULL,
    effective_date date NOT NULL,
    variant text NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    path text,
    rows bigint,
    bytes bigint,
    sha256 text,
    etag text,
    format text,
    definition text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    last_generated_at timestamp with time zone,
    claimed_at timestamp with time zone,
    job_id text,
    writer_chunk bigint,
    writer_fence bigint,
    upload_path text,
    upload_id text,
    CONSTRAINT file_cache_dataset_scope_key_effective_date_variant_key UNIQUE (dataset, scope, key, effective_date, variant),
    CONSTRAINT file_cache_pkey PRIMARY KEY (id)
) WITH (fillfactor=50);

CREATE TABLE outhaul.job (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    job_id text NOT NULL,
    job_type text NOT NULL,
    dataset text,
    owner text NOT NULL,
    department text,
    scope text DEFAULT ''::text NOT NULL,
    identity text,
    idempotency_key text,
    request_hash text,
    unique_key text,
    request jsonb NOT NULL,
    params text NOT NULL,
    labels jsonb NOT NULL,
    base_path text,
    on_failure text NOT NULL,
    on_parent_failure text DEFAULT 'hold'::text NOT NULL,
    run_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    total integer NOT NULL,
    priority smallint NOT NULL,
    status text DEFAULT 'SUBMITTED'::text NOT NULL,
    done integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    cancelled integer DEFAULT 0 NOT NULL,
    reused integer DEFAULT 0 NOT NULL,
    rows bigint DEFAULT 0 NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    waits_for integer DEFAULT 0 NOT NULL,
    released text,
    checked_at timestamp with time zone,
    pruned_at timestamp with time zone,
    error_message text,
    result text,
    CONSTRAINT job_job_id_key UNIQUE (job_id),
    CONSTRAINT job_on_failure_check CHECK ((on_failure = ANY (ARRAY['stop'::text, 'continue'::text]))),
    CONSTRAINT job_on_parent_failure_check CHECK ((on_parent_failure = ANY (ARRAY['hold'::text, 'cancel'::text, 'run'::text, 'fail'::text]))),
    CONSTRAINT job_pkey PRIMARY KEY (id),
    CONSTRAINT job_released_check CHECK ((released = ANY (ARRAY['queue'::text, 'fail'::text]))),
    CONSTRAINT job_status_check CHECK ((status = ANY (ARRAY['SUBMITTED'::text, 'IN_PROGRESS'::text, 'COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text])))
) WITH (fillfactor=50);

CREATE TABLE outhaul.job_chunk (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    job_id bigint NOT NULL,
    position integer NOT NULL,
    queue_id integer NOT NULL,
    waits_for integer DEFAULT 0 NOT NULL,
    effective_date date,
    chunk_key text NOT NULL,
    key text,
    turn timestamp with time zone,
    fence bigint DEFAULT 0 NOT NULL,
    worker_id bigint,
    lease_until timestamp with time zone,
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    run_at timestamp with time zone,
    attempt integer DEFAULT 0 NOT NULL,
    priority smallint NOT NULL,
    returned smallint DEFAULT 0 NOT NULL,
    lost smallint DEFAULT 0 NOT NULL,
    held boolean DEFAULT false NOT NULL,
    state text NOT NULL,
    first_failed_at timestamp with time zone,
    step text,
    error_message text,
    error_detail text,
    CONSTRAINT job_chunk_pkey PRIMARY KEY (id),
    CONSTRAINT job_chunk_state_check CHECK ((state = ANY (ARRAY['CREATED'::text, 'QUEUED'::text, 'RUNNING'::text, 'RETRY'::text, 'SUCCESS'::text, 'DEAD'::text, 'CANCELLED'::text])))
) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_analyze_scale_factor=0.05);

CREATE TABLE outhaul.job_parent (
    child_id bigint NOT NULL,
    parent_id bigint NOT NULL,
    settled boolean DEFAULT false NOT NULL,
    CONSTRAINT job_parent_pkey PRIMARY KEY (child_id, parent_id)
);

CREATE TABLE outhaul.meta (
    name text NOT NULL,
    value text NOT NULL,
    CONSTRAINT meta_pkey PRIMARY KEY (name)
);

CREATE TABLE outhaul.migration (
    version bigint NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT migration_pkey PRIMARY KEY (version)
);

CREATE TABLE outhaul.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    message_id text NOT NULL,
    body text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    taken_until timestamp with time zone,
    CONSTRAINT outbox_message_id_key UNIQUE (message_id),
    CONSTRAINT outbox_pkey PRIMARY KEY (id)
) WITH (fillfactor=70);

CREATE TABLE outhaul.queue (
    id integer GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    max_concurrent integer,
    paused boolean DEFAULT false NOT NULL,
    CONSTRAINT queue_name_key UNIQUE (name),
    CONSTRAINT queue_pkey PRIMARY KEY (id)
);

CREATE TABLE outhaul.queue_slot (
    queue_id integer NOT NULL,
    slot integer NOT NULL,
    worker_id bigint,
    lease_until timestamp with time zone,
    CONSTRAINT queue_slot_pkey PRIMARY KEY (queue_id, slot),
    CONSTRAINT queue_slot_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES outhaul.queue(id)
) WITH (fillfactor=50);

CREATE TABLE outhaul.schedule (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL,
    job text NOT NULL,
    overlap text NOT NULL,
    catch_up text NOT NULL,
    catch_up_limit integer NOT NULL,
    jitter_micros bigint NOT NULL,
    origin text NOT NULL,
    owner text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    next_slot timestamp with time zone,
    fire_at timestamp with time zone,
    version bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT schedule_catch_up_check CHECK ((catch_up = ANY (ARRAY['none'::text, 'last'::text, 'all'::text]))),
    CONSTRAINT schedule_name_key UNIQUE (name),
    CONSTRAINT schedule_origin_check CHECK ((origin = ANY (ARRAY['api'::text, 'config'::text]))),
    CONSTRAINT schedule_overlap_check CHECK ((overlap = ANY (ARRAY['skip'::text, 'queue'::text, 'allow'::text]))),
    CONSTRAINT schedule_pkey PRIMARY KEY (id)
);

CREATE TABLE outhaul.schedule_slot (
    schedule_id bigint NOT NULL,
    slot timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    job_id text,
    detail text,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT schedule_slot_outcome_check CHECK ((outcome = ANY (ARRAY['fired'::text, 'skipped'::text, 'missed'::text, 'refused'::text]))),
    CONSTRAINT schedule_slot_pkey PRIMARY KEY (schedule_id, slot),
    CONSTRAINT schedule_slot_schedule_id_fkey FOREIGN KEY (schedule_id) REFERENCES outhaul.schedule(id) ON DELETE CASCADE
);

CREATE TABLE outhaul.step (
    chunk_id bigint NOT NULL,
    name text NOT NULL,
    fence bigint NOT NULL,
    completed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    result text NOT NULL,
    CONSTRAINT step_pkey PRIMARY KEY (chunk_id, name)
);

CREATE TABLE outhaul.trigger_arrival (
    trigger_id bigint NOT NULL,
    value text NOT NULL,
    term text NOT NULL,
    job_id text NOT NULL,
    owner text NOT NULL,
    completed_at timestamp with time zone NOT NULL,
    CONSTRAINT trigger_arrival_pkey PRIMARY KEY (trigger_id, value, term, job_id),
    CONSTRAINT trigger_arrival_trigger_id_fkey FOREIGN KEY (trigger_id) REFERENCES outhaul.trigger_rule(id) ON DELETE CASCADE
);

CREATE TABLE outhaul.trigger_due (
    job_id bigint NOT NULL,
    term text NOT NULL,
    completed_at timestamp with time zone NOT NULL,
    CONSTRAINT trigger_due_pkey PRIMARY KEY (job_id)
);

CREATE TABLE outhaul.trigger_fire (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    trigger_id bigint NOT NULL,
    value text NOT NULL,
    parents text[] NOT NULL,
    state text DEFAULT 'due'::text NOT NULL,
    job_id text,
    detail text,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT trigger_fire_pkey PRIMARY KEY (id),
    CONSTRAINT trigger_fire_state_check CHECK ((state = ANY (ARRAY['due'::text, 'fired'::text, 'refused'::text]))),
    CONSTRAINT trigger_fire_trigger_id_fkey FOREIGN KEY (trigger_id) REFERENCES outhaul.trigger_rule(id) ON DELETE CASCADE,
    CONSTRAINT trigger_fire_trigger_id_value_parents_key UNIQUE (trigger_id, value, parents)
);

CREATE TABLE outhaul.trigger_rule (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    after_terms text[] NOT NULL,
    match_label text,
    within_micros bigint,
    job text NOT NULL,
    produces text NOT NULL,
    origin text NOT NULL,
    owner text NOT NULL,
    since timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    created_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT trigger_rule_name_key UNIQUE (name),
    CONSTRAINT trigger_rule_origin_check CHECK ((origin = ANY (ARRAY['api'::text, 'config'::text]))),
    CONSTRAINT trigger_rule_pkey PRIMARY KEY (id)
);

CREATE TABLE outhaul.worker (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    host text NOT NULL,
    roles text NOT NULL,
    concurrency integer NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT worker_pkey PRIMARY KEY (id)
) WITH (fillfactor=50);

CREATE INDEX audit_at ON outhaul.audit USING btree (at);

CREATE INDEX audit_of_actor ON outhaul.audit USING btree (actor, id DESC);

CREATE INDEX audit_of_job ON outhaul.audit USING btree (job_id, id DESC) WHERE (job_id IS NOT NULL);

CREATE INDEX chunk_claim ON outhaul.job_chunk USING btree (queue_id, priority DESC, turn, id) WHERE (state = 'QUEUED'::text);

CREATE INDEX chunk_dead ON outhaul.job_chunk USING btree (completed_at, id) WHERE (state = 'DEAD'::text);

CREATE INDEX chunk_due ON outhaul.job_chunk USING btree (run_at) WHERE ((state = ANY (ARRAY['CREATED'::text, 'RETRY'::text])) AND (NOT held) AND (waits_for = 0));

CREATE UNIQUE INDEX chunk_of_job ON outhaul.job_chunk USING btree (job_id, chunk_key);

CREATE INDEX chunk_pending ON outhaul.job_chunk USING btree (job_id, held) WHERE (state = ANY (ARRAY['CREATED'::text, 'QUEUED'::text, 'RETRY'::text]));

CREATE INDEX chunk_running ON outhaul.job_chunk USING btree (job_id) WHERE (state = 'RUNNING'::text);

CREATE INDEX file_writer ON outhaul.file_cache USING btree (id) WHERE (writer_chunk IS NOT NULL);

CREATE INDEX history_of_chunk ON outhaul.chunk_history USING btree (chunk_id);

CREATE INDEX job_closing ON outhaul.job USING btree (id) WHERE ((status = ANY (ARRAY['FAILED'::text, 'CANCELLED'::text])) AND (completed_at IS NULL));

CREATE INDEX job_created ON outhaul.job USING brin (created_at) WITH (pages_per_range='16', autosummarize='on');

CREATE INDEX job_ended ON outhaul.job USING btree (status, id) WHERE (status = ANY (ARRAY['COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text]));

CREATE UNIQUE INDEX job_idempotency ON outhaul.job USING btree (owner, idempotency_key) WHERE (idempotency_key IS NOT NULL);

CREATE INDEX job_of_department ON outhaul.job USING btree (department, id DESC) WHERE (department IS NOT NULL);

CREATE INDEX job_of_owner ON outhaul.job USING btree (owner, id DESC) WHERE (owner <> 'anonymous'::text);

CREATE INDEX job_open ON outhaul.job USING btree (id) WHERE (status = ANY (ARRAY['SUBMITTED'::text, 'IN_PROGRESS'::text]));

CREATE INDEX job_open_of_owner ON outhaul.job USING btree (owner) WHERE ((owner <> 'anonymous'::text) AND (status = ANY (ARRAY['SUBMITTED'::text, 'IN_PROGRESS'::text])));

CREATE INDEX job_pruned ON outhaul.job USING btree (id) WHERE (pruned_at IS NOT NULL);

CREATE INDEX job_released ON outhaul.job USING btree (id) WHERE (released IS NOT NULL);

CREATE UNIQUE INDEX job_unique ON outhaul.job USING btree (job_type, unique_key) WHERE ((unique_key IS NOT NULL) AND (status = ANY (ARRAY['SUBMITTED'::text, 'IN_PROGRESS'::text])));

CREATE INDEX parent_of_job ON outhaul.job_parent USING btree (parent_id) WHERE (NOT settled);

CREATE INDEX progress_of_job ON outhaul.chunk_progress USING btree (job_id);

CREATE INDEX schedule_due ON outhaul.schedule USING btree (fire_at) WHERE (NOT paused);

CREATE INDEX schedule_slot_at ON outhaul.schedule_slot USING btree (at);

CREATE INDEX trigger_arrival_at ON outhaul.trigger_arrival USING btree (completed_at);

CREATE INDEX trigger_arrival_newest ON outhaul.trigger_arrival USING btree (trigger_id, value, term, completed_at, job_id);

CREATE INDEX trigger_arrival_of ON outhaul.trigger_arrival USING btree (trigger_id, completed_at);

CREATE INDEX trigger_due_in_order ON outhaul.trigger_due USING btree (completed_at, job_id);

CREATE INDEX trigger_fire_at ON outhaul.trigger_fire USING btree (at);

CREATE INDEX trigger_fire_due ON outhaul.trigger_fire USING btree (id) WHERE (state = 'due'::text);

CREATE INDEX trigger_fire_of ON outhaul.trigger_fire USING btree (trigger_id, id);

CREATE INDEX trigger_rule_after ON outhaul.trigger_rule USING gin (after_terms);

CREATE INDEX wait_of_job ON outhaul.job_parent USING btree (child_id, parent_id) WHERE (NOT settled);

CREATE VIEW outhaul.job_view AS
 SELECT j.id,
    j.job_id,
    j.job_type,
    j.dataset,
    j.owner,
    j.status AS stored_status,
        CASE
            WHEN ((j.status = 'SUBMITTED'::text) AND (r.running > 0)) THEN 'IN_PROGRESS'::text
            ELSE j.status
        END AS status,
    j.on_failure,
    j.priority,
    j.labels,
    j.base_path,
    j.error_message,
    j.total,
    r.running,
    j.done,
    j.failed,
    j.cancelled,
    j.reused,
    j.rows,
    j.bytes,
    j.version,
    j.run_at,
    j.created_at,
    j.updated_at,
    COALESCE(j.started_at, r.started_at) AS started_at,
    j.completed_at,
    j.idempotency_key,
    j.request_hash,
    m.rows AS moving_rows,
    m.bytes AS moving_bytes,
    m.chunks AS moving_chunks,
    j.identity,
    j.department,
    j.scope,
    (((j.version << 32) + r.running) + m.reports) AS shown_version
   FROM ((outhaul.job j
     CROSS JOIN LATERAL ( SELECT count(*) AS running,
            min(c.started_at) AS started_at
           FROM outhaul.job_chunk c
          WHERE ((c.job_id = j.id) AND (c.state = 'RUNNING'::text))) r)
     CROSS JOIN LATERAL ( SELECT (COALESCE(sum(p.rows), (0)::numeric))::bigint AS rows,
            (COALESCE(sum(p.bytes), (0)::numeric))::bigint AS bytes,
            COALESCE(sum(p.fraction), (0)::double precision) AS chunks,
            (COALESCE(sum(p.reports), (0)::numeric))::bigint AS reports
           FROM (outhaul.chunk_progress p
             JOIN outhaul.job_chunk c ON ((c.id = p.chunk_id)))
          WHERE ((p.job_id = j.id) AND (c.state = ANY (ARRAY['CREATED'::text, 'QUEUED'::text, 'RUNNING'::text, 'RETRY'::text])))) m)
  WHERE (j.pruned_at IS NULL);
