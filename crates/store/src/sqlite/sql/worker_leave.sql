-- ?1 worker
DELETE FROM worker WHERE id = ?1
