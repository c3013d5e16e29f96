-- Its arrivals and firings go with it.
DELETE FROM trigger_rule WHERE name = ?1 AND origin = 'api'
