DELETE FROM outhaul.schedule WHERE origin = 'config' AND name <> ALL ($1::text[])
