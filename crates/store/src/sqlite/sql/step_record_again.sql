-- Whether this lease, still held, recorded the step before: then an answer was lost. ?1 chunk, ?2 fence, ?3 name
SELECT EXISTS (
    SELECT 1 FROM step AS s JOIN job_chunk AS c ON c.id = s.chunk_id
    WHERE s.chunk_id = ?1 AND s.name = ?3 AND s.fence = ?2 AND c.fence = ?2 AND c.state = 'RUNNING'
)
