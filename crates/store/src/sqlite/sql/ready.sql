-- A real write: an open transaction alone does not notice a full disk.
-- ?1 now
INSERT INTO meta (name, value) VALUES ('ready', ?1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
