INSERT INTO audit (at, actor, act, job_id, detail)
SELECT ?1, e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3 FROM json_each(?2) AS e ORDER BY e.key
