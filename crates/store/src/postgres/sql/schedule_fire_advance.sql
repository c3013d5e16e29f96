UPDATE outhaul.schedule SET next_slot = $2, fire_at = $3 WHERE id = $1
