-- One completed job: it arrives at every trigger that asks for it and whose label it has, and makes a set
-- with the newest arrival of every other term. A set that is there already stays as it is.
WITH rule AS MATERIALIZED (
    SELECT r.id, r.after_terms, r.within_micros * interval '1 microsecond' AS within,
           CASE WHEN r.match_label IS NULL THEN '' ELSE j.labels ->> r.match_label END AS value,
           j.job_id, j.owner, j.completed_at, r.owner <> 'anonymous' AS of_anybody
    FROM outhaul.trigger_rule r
    JOIN outhaul.job j ON j.id = $1
    WHERE r.id = ANY ($3::bigint[]) AND r.after_terms @> ARRAY[$2::text] AND r.since <= j.completed_at
      AND (r.match_label IS NULL OR j.labels ->> r.match_label IS NOT NULL)
), arrived AS (
    INSERT INTO outhaul.trigger_arrival (trigger_id, value, term, job_id, owner, completed_at)
    -- Who waits for one job waits for no other.
    SELECT id, value, $2::text, job_id, owner, completed_at FROM rule WHERE cardinality(after_terms) > 1
    ON CONFLICT DO NOTHING
), parents AS MATERIALIZED (
    SELECT r.id, r.value, array_agg(p.job_id ORDER BY t.place) AS parents, bool_and(p.job_id IS NOT NULL) AS complete
    FROM rule r
    CROSS JOIN LATERAL unnest(r.after_terms) WITH ORDINALITY AS t (term, place)
    LEFT JOIN LATERAL (
        SELECT r.job_id WHERE t.term = $2
        UNION ALL
        (SELECT a.job_id
         FROM outhaul.trigger_arrival a
         WHERE t.term <> $2 AND a.trigger_id = r.id AND a.value = r.value AND a.term = t.term
           -- Without an identity of its own a trigger runs as the owner of all, so nobody else's job counts.
           AND (r.of_anybody OR a.owner = r.owner)
           AND (r.within IS NULL
                OR a.completed_at BETWEEN r.completed_at - r.within AND r.completed_at + r.within)
         ORDER BY a.completed_at DESC, a.job_id DESC
         LIMIT 1)
    ) AS p ON true
    GROUP BY r.id, r.value
)
INSERT INTO outhaul.trigger_fire (trigger_id, value, parents)
SELECT id, value, parents FROM parents WHERE complete ORDER BY id
ON CONFLICT DO NOTHING
