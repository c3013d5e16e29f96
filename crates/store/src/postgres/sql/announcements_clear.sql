-- To be announced again at once.
WITH cleared AS MATERIALIZED (
    SELECT a.chunk_id FROM outhaul.announcement a WHERE a.chunk_id = ANY ($1::bigint[]) ORDER BY a.chunk_id FOR UPDATE
)
DELETE FROM outhaul.announcement a WHERE a.chunk_id = ANY (ARRAY(SELECT chunk_id FROM cleared))
