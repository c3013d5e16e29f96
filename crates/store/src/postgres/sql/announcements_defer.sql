-- To be announced again after a while, twice as long with every repetition, to a bound; never later than it
-- would be.
WITH deferred AS MATERIALIZED (
    SELECT a.chunk_id FROM outhaul.announcement a WHERE a.chunk_id = ANY ($1::bigint[]) ORDER BY a.chunk_id FOR UPDATE
)
UPDATE outhaul.announcement a
SET standing = 'deferred',
    until = LEAST(a.until, clock_timestamp() + LEAST($2::interval * (1 << a.waits), GREATEST($2::interval, $3::interval))),
    waits = CASE WHEN a.standing = 'deferred' THEN a.waits ELSE LEAST(a.waits + 1, 5) END
WHERE a.chunk_id = ANY (ARRAY(SELECT chunk_id FROM deferred))
