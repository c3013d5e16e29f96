-- ?1 base path
SELECT dataset FROM base_path WHERE path = ?1
