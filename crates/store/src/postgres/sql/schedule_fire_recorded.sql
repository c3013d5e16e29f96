SELECT slot FROM outhaul.schedule_slot WHERE schedule_id = $1 AND slot = ANY ($2::timestamptz[])
