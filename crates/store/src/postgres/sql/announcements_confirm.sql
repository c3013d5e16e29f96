-- The broker has them: they count for the whole expiry, twice as long with every repetition. Only under the
-- marks that the caller was given; and not those whose messages were consumed already, and deferred: nothing
-- is on the way of them.
WITH confirmed AS MATERIALIZED (
    SELECT a.chunk_id
    FROM outhaul.announcement a
    WHERE a.chunk_id = ANY ($1::bigint[]) AND a.standing = 'held'
      AND ((a.chunk_id, a.until) IN (SELECT * FROM unnest($1::bigint[], $2::timestamptz[]))) IS TRUE
    ORDER BY a.chunk_id
    FOR UPDATE
)
UPDATE outhaul.announcement a
SET standing = 'sent', until = clock_timestamp() + $3::interval * (1 << a.times)
WHERE a.chunk_id = ANY (ARRAY(SELECT chunk_id FROM confirmed))
