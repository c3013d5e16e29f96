SELECT id FROM outhaul.schedule WHERE id = $1 AND version = $2 FOR NO KEY UPDATE
