DELETE FROM audit
WHERE id = ANY (ARRAY(SELECT id FROM audit WHERE at < now() - $1::interval ORDER BY at LIMIT $2))
