-- One at a time may change what triggers say: two that are harmless alone may make a cycle together.
LOCK TABLE outhaul.trigger_rule IN SHARE ROW EXCLUSIVE MODE
