-- Whether an equal job is unfinished, so that this one may not be. ?1 job
SELECT EXISTS (
    SELECT 1
    FROM job AS j
    CROSS JOIN job AS other ON other.job_type = j.job_type AND other.unique_key = j.unique_key
    WHERE j.id = ?1 AND other.id <> j.id
      AND other.unique_key IS NOT NULL AND other.status IN ('SUBMITTED', 'IN_PROGRESS')
)
