-- ?1 until
UPDATE announcement SET until = ?1 WHERE until > ?1
