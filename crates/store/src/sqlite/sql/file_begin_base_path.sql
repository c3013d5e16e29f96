-- Whose the base path is from now on: the dataset's, unless it is another's already. ?1 base path, ?2 dataset, ?3 now
INSERT INTO base_path (path, dataset, recorded_at) VALUES (?1, ?2, ?3)
ON CONFLICT (path) DO NOTHING
