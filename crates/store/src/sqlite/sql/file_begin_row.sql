-- Makes sure that the identity has a row. ?1–?5 the identity, ?6 now
INSERT INTO file_cache (dataset, scope, key, effective_date, variant, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (dataset, scope, key, effective_date, variant) DO NOTHING
