-- Whose a base path is: the dataset that published there first. Rows are never changed or deleted, so that no
-- dataset ever publishes over another's files, whatever a configuration says.
CREATE TABLE base_path (
    path        TEXT PRIMARY KEY,
    dataset     TEXT NOT NULL,
    recorded_at INTEGER NOT NULL
) STRICT;

-- Files that were published before this table existed. Where two datasets have published below one base path,
-- it belongs to the one that published there last: that one has it in the present configuration. The file's name,
-- YYYY/MM/DD/, and the folders of variant and scope are cut off.
INSERT INTO base_path (path, dataset, recorded_at)
SELECT base, dataset, last_generated_at
FROM (SELECT base, dataset, last_generated_at,
             row_number() OVER (PARTITION BY base ORDER BY last_generated_at DESC, id DESC) AS place
      FROM (SELECT substr(folder, 1, length(folder) - length('YYYY/MM/DD/')
                       - CASE variant WHEN '' THEN 0 ELSE length('variant=/') + length(variant) END
                       - CASE scope WHEN '' THEN 0 ELSE length('scope=/') + length(scope) END) AS base,
                   dataset, last_generated_at, id
            FROM (SELECT rtrim(path, replace(path, '/', '')) AS folder, dataset, scope, variant,
                         last_generated_at, id
                  FROM file_cache
                  WHERE path GLOB '*[0-9][0-9][0-9][0-9]/[0-9][0-9]/[0-9][0-9]/*')))
WHERE place = 1;

-- Records whose object another dataset has overwritten since: there is no file of theirs any more.
UPDATE file_cache
SET generation = generation + 1, path = NULL, rows = NULL, bytes = NULL, sha256 = NULL, etag = NULL, format = NULL,
    definition = NULL, last_generated_at = NULL, claimed_at = NULL, job_id = NULL
WHERE id IN (SELECT k.id
             FROM file_cache AS k
             JOIN file_cache AS later ON later.path = k.path
             WHERE (later.last_generated_at, later.id) > (k.last_generated_at, k.id));
