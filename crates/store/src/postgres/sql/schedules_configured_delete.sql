DELETE FROM schedule WHERE origin = 'config' AND name <> ALL ($1::text[])
