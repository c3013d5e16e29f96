-- Whose a base path is: the dataset that published there first. Rows are never changed or deleted, so that no
-- dataset ever publishes over another's files, whatever a configuration says.
CREATE TABLE base_path (
    path        text PRIMARY KEY,
    dataset     text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now()
);

-- Files that were published before this table existed. Where two datasets have published below one base path,
-- it belongs to the one that published there last: that one has it in the present configuration.
INSERT INTO base_path (path, dataset)
SELECT DISTINCT ON (p.base) p.base, p.dataset
FROM (SELECT regexp_replace(k.path, '(scope=[^/]+/)?(variant=[^/]+/)?[0-9]{4}/[0-9]{2}/[0-9]{2}/[^/]+$', '') AS base,
             k.dataset, k.last_generated_at, k.id
      FROM file_cache k
      WHERE k.path ~ '[0-9]{4}/[0-9]{2}/[0-9]{2}/[^/]+$') AS p
ORDER BY p.base, p.last_generated_at DESC, p.id DESC;

-- Records whose object another dataset has overwritten since: there is no file of theirs any more.
UPDATE file_cache k
SET generation = k.generation + 1, path = NULL, rows = NULL, bytes = NULL, sha256 = NULL, etag = NULL, format = NULL,
    definition = NULL, last_generated_at = NULL, claimed_at = NULL, job_id = NULL
FROM file_cache later
WHERE later.path = k.path AND (later.last_generated_at, later.id) > (k.last_generated_at, k.id);
