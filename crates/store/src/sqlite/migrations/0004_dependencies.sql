-- Jobs that wait for others. `job.waits_for` is how many of its rows here are not settled; it is lowered
-- only in the transaction that settles them, so never twice. Chunks of a waiting job wait with it.
ALTER TABLE job ADD COLUMN on_parent_failure TEXT NOT NULL DEFAULT 'hold'
    CHECK (on_parent_failure IN ('hold', 'cancel', 'run', 'fail'));

CREATE TABLE job_parent (
    child_id  INTEGER NOT NULL REFERENCES job (id) ON DELETE CASCADE,
    parent_id INTEGER NOT NULL,
    settled   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (child_id, parent_id)
) STRICT;
CREATE INDEX parent_of_job ON job_parent (parent_id) WHERE settled = 0;
