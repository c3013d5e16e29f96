SELECT result FROM outhaul.step WHERE chunk_id = $1 AND name = $2
