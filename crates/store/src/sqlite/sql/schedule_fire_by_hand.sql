-- ?1 schedule, ?2 version
SELECT EXISTS (SELECT 1 FROM schedule WHERE id = ?1 AND version = ?2)
