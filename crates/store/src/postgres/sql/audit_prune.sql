DELETE FROM outhaul.audit
WHERE id = ANY (ARRAY(SELECT id FROM outhaul.audit WHERE at < now() - $1::interval ORDER BY at LIMIT $2))
