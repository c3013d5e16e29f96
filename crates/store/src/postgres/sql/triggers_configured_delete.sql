DELETE FROM outhaul.trigger_rule WHERE origin = 'config' AND name <> ALL ($1::text[])
