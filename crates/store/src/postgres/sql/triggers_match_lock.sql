-- Whoever judges a job holds the triggers it is judged by, and sees in later statements what others have judged.
SELECT id FROM outhaul.trigger_rule WHERE after_terms && $1::text[] ORDER BY id FOR NO KEY UPDATE
