SELECT path, dataset FROM base_path ORDER BY path
