INSERT INTO outhaul.worker (host, roles, concurrency) VALUES ($1, $2, $3) RETURNING id
