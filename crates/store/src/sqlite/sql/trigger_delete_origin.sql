SELECT origin FROM trigger_rule WHERE name = ?1
