-- Only under the marks that the caller was given; and not those whose messages were consumed already, and
-- deferred: nothing is on the way of them.
-- ?1 [[queue, chunk, mark], …], ?2 now, ?3 expiry
UPDATE announcement
SET standing = 'sent', until = ?2 + (?3 << times)
FROM json_each(?1) AS told
WHERE announcement.queue_id = told.value ->> 0 AND announcement.chunk_id = told.value ->> 1
  AND announcement.until = told.value ->> 2 AND announcement.standing = 'held'
