-- ?1 status as it is shown, ?2 job type, ?3 dataset, ?4 owner, ?5 created at or after, ?6 created before,
-- ?7 older than this position, ?8 limit, ?9 subject and ?10 department of who asks, where not all is shown
SELECT *
FROM job_view
WHERE id < coalesce(?7, 9223372036854775807)
  AND (?1 IS NULL OR status = ?1)
  AND (?2 IS NULL OR job_type = ?2)
  AND (?3 IS NULL OR dataset = ?3)
  AND (?4 IS NULL OR owner = ?4)
  AND (?5 IS NULL OR created_at >= ?5)
  AND (?6 IS NULL OR created_at < ?6)
  AND (?9 IS NULL OR owner = ?9 OR department = ?10)
ORDER BY id DESC
LIMIT ?8
