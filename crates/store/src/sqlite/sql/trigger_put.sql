INSERT INTO trigger_rule (name, after_terms, match_label, within_micros, job, produces, origin, owner, since,
                          created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?9)
