SELECT path, dataset FROM outhaul.base_path ORDER BY path
