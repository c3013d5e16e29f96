-- Values for which some terms have arrived and some not; of each term its newest arrival. Of a trigger with
-- very many arrivals only the values of the newest are looked at.
WITH rule AS MATERIALIZED (
    SELECT id, after_terms, clock_timestamp() - within_micros * interval '1 microsecond' AS since
    FROM outhaul.trigger_rule
    WHERE id = $1 AND cardinality(after_terms) > 1
), value AS MATERIALIZED (
    SELECT a.value, max(a.completed_at) AS newest
    FROM rule r
    CROSS JOIN LATERAL (
        SELECT a.value, a.completed_at
        FROM outhaul.trigger_arrival a
        WHERE a.trigger_id = r.id AND (r.since IS NULL OR a.completed_at >= r.since)
        ORDER BY a.completed_at DESC
        LIMIT 1000
    ) AS a
    GROUP BY a.value
), newest AS MATERIALIZED (
    SELECT v.value, v.newest, t.term, t.place, a.job_id, a.completed_at
    FROM rule r
    CROSS JOIN value v
    CROSS JOIN LATERAL unnest(r.after_terms) WITH ORDINALITY AS t (term, place)
    LEFT JOIN LATERAL (
        SELECT a.job_id, a.completed_at
        FROM outhaul.trigger_arrival a
        WHERE a.trigger_id = r.id AND a.value = v.value AND a.term = t.term
          AND (r.since IS NULL OR a.completed_at >= r.since)
        ORDER BY a.completed_at DESC, a.job_id DESC
        LIMIT 1
    ) AS a ON true
), waiting AS (
    SELECT n.value
    FROM newest n
    GROUP BY n.value, n.newest
    HAVING bool_or(n.job_id IS NULL)
    ORDER BY n.newest DESC, n.value
    LIMIT $2
)
SELECT n.value, n.term, n.job_id, n.completed_at
FROM newest n
WHERE n.value IN (SELECT value FROM waiting)
ORDER BY n.newest DESC, n.value, n.place
