-- The first migration of development versions had another name.
SELECT EXISTS (SELECT 1 FROM _sqlx_migrations WHERE version = 1 AND description <> 'schema')
