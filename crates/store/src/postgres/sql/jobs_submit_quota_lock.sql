-- Submissions of one owner with a quota come one after the other, until each is committed.
SELECT pg_advisory_xact_lock(hashtextextended('outhaul quota ' || owner, 0))
FROM unnest($1::text[]) AS o (owner)
ORDER BY owner
