SELECT origin FROM schedule WHERE name = ?1
