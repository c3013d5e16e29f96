-- Custom jobs: payloads of any JSON, results, steps, dead letters, and the history of chunks.

-- As text, for JSON may hold what jsonb refuses (\u0000) or rounds.
ALTER TABLE job ALTER COLUMN params TYPE text USING params::text;
ALTER TABLE job ADD COLUMN unique_key text, ADD COLUMN result text;
-- Of jobs that may be there only once, one is unfinished at most.
CREATE UNIQUE INDEX job_unique ON job (job_type, unique_key)
    WHERE unique_key IS NOT NULL AND status IN ('SUBMITTED', 'IN_PROGRESS');

-- The step that failed last, and when the chunk first failed since it was submitted or redriven.
ALTER TABLE job_chunk ADD COLUMN step text, ADD COLUMN first_failed_at timestamptz;
CREATE INDEX chunk_dead ON job_chunk (completed_at, id) WHERE state = 'DEAD';

-- Finished steps: the recovery points of a chunk. The key makes sure that none is recorded twice.
CREATE TABLE step (
    chunk_id     bigint NOT NULL,
    name         text NOT NULL,
    fence        bigint NOT NULL,
    completed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    result       text NOT NULL,
    PRIMARY KEY (chunk_id, name)
);

-- Transitions, append-only. Being inserted, the first claim and SUCCESS are not here: the chunk's own
-- row tells of them, so that a chunk that simply succeeds writes no history.
CREATE TABLE chunk_history (
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
CREATE INDEX history_of_chunk ON chunk_history (chunk_id);
