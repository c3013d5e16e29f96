DELETE FROM outhaul.worker WHERE last_seen_at < now() - interval '1 day'
