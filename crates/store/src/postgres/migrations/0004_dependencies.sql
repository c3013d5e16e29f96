-- Jobs that wait for others. `job.waits_for` is how many of its rows here are not settled; it is lowered
-- only in the statement that settles them, so never twice.
ALTER TABLE job ADD COLUMN on_parent_failure text NOT NULL DEFAULT 'hold'
    CHECK (on_parent_failure IN ('hold', 'cancel', 'run', 'fail'));
-- Set when a job waits for nothing more: what is to become of its chunks, which follow in batches.
ALTER TABLE job ADD COLUMN released text CHECK (released IN ('queue', 'fail'));
CREATE INDEX job_released ON job (id) WHERE released IS NOT NULL;

CREATE TABLE job_parent (
    child_id  bigint NOT NULL,
    parent_id bigint NOT NULL,
    settled   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (child_id, parent_id)
);
CREATE INDEX parent_of_job ON job_parent (parent_id) WHERE NOT settled;
CREATE INDEX wait_of_job ON job_parent (child_id, parent_id) WHERE NOT settled;
