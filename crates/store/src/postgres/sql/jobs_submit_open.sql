SELECT o.owner, COALESCE(sum(j.total - j.done - j.failed - j.cancelled), 0)::bigint AS open
FROM unnest($1::text[]) AS o (owner)
LEFT JOIN outhaul.job j ON j.owner = o.owner AND j.owner <> 'anonymous' AND j.status IN ('SUBMITTED', 'IN_PROGRESS')
GROUP BY o.owner
