-- Makes the dataset the owner of the base path, unless another dataset owns it. ?1 base path, ?2 dataset, ?3 now
INSERT INTO base_path (path, dataset, recorded_at) VALUES (?1, ?2, ?3)
ON CONFLICT (path) DO NOTHING
