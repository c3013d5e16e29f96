-- The newest arrival of each term, for values that lack a term. ?1 trigger, ?2 now, ?3 limit
WITH rule AS MATERIALIZED (
    SELECT id, after_terms, ?2 - coalesce(within_micros, ?2) AS since FROM trigger_rule WHERE id = ?1
), term AS MATERIALIZED (
    SELECT t.key AS place, t.value AS term FROM rule CROSS JOIN json_each(rule.after_terms) AS t
), waiting AS MATERIALIZED (
    SELECT a.value, max(a.completed_at) AS newest
    FROM rule
    CROSS JOIN trigger_arrival AS a ON a.trigger_id = rule.id
    WHERE a.completed_at >= rule.since AND a.term IN (SELECT term FROM term)
    GROUP BY a.value
    HAVING count(DISTINCT a.term) < (SELECT count(*) FROM term)
    ORDER BY newest DESC, a.value
    LIMIT ?3
)
SELECT a.value, a.term, a.job_id, a.completed_at, rule.after_terms
FROM rule
CROSS JOIN waiting AS w
CROSS JOIN term AS t
CROSS JOIN trigger_arrival AS a ON a.rowid = (
    SELECT n.rowid
    FROM trigger_arrival AS n
    WHERE n.trigger_id = ?1 AND n.value = w.value AND n.term = t.term AND n.completed_at >= rule.since
    ORDER BY n.completed_at DESC, n.rowid DESC
    LIMIT 1
)
ORDER BY w.newest DESC, w.value, t.place
