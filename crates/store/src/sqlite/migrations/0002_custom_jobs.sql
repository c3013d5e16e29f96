-- Custom jobs: results, steps, dead letters, jobs that may be there only once, and the history of chunks.

ALTER TABLE job ADD COLUMN unique_key TEXT;
-- JSON text, as the job left it.
ALTER TABLE job ADD COLUMN result TEXT;
-- Of jobs that may be there only once, one is unfinished at most.
CREATE UNIQUE INDEX job_unique ON job (job_type, unique_key)
    WHERE unique_key IS NOT NULL AND status IN ('SUBMITTED', 'IN_PROGRESS');

-- The step that failed last, and when the chunk first failed since it was submitted or redriven.
ALTER TABLE job_chunk ADD COLUMN step TEXT;
ALTER TABLE job_chunk ADD COLUMN first_failed_at INTEGER;
CREATE INDEX chunk_dead ON job_chunk (completed_at, id) WHERE state = 'DEAD';

-- Finished steps: the recovery points of a chunk. The key makes sure that none is recorded twice.
CREATE TABLE step (
    chunk_id     INTEGER NOT NULL REFERENCES job_chunk (id) ON DELETE CASCADE,
    name         TEXT    NOT NULL,
    fence        INTEGER NOT NULL,
    completed_at INTEGER NOT NULL,
    result       TEXT    NOT NULL,
    PRIMARY KEY (chunk_id, name)
) STRICT;

-- Transitions, append-only. Being inserted, the first claim and SUCCESS are not here: the chunk's own
-- row tells of them, so that a chunk that simply succeeds writes no history.
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
CREATE INDEX history_of_chunk ON chunk_history (chunk_id);
