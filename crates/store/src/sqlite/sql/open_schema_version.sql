SELECT coalesce(max(version), 0) FROM _sqlx_migrations
