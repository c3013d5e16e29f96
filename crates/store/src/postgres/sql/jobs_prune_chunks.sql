WITH victims AS MATERIALIZED (
    SELECT c.id
    FROM outhaul.job_chunk c
    WHERE c.job_id = ANY (ARRAY(
        SELECT j.id FROM outhaul.job j WHERE j.pruned_at IS NOT NULL LIMIT $1))
    LIMIT $1
), progress AS (
    DELETE FROM outhaul.chunk_progress WHERE chunk_id = ANY (ARRAY(SELECT id FROM victims))
), steps AS (
    DELETE FROM outhaul.step WHERE chunk_id = ANY (ARRAY(SELECT id FROM victims))
), history AS (
    DELETE FROM outhaul.chunk_history WHERE chunk_id = ANY (ARRAY(SELECT id FROM victims))
), files AS (
    DELETE FROM outhaul.chunk_file WHERE chunk_id = ANY (ARRAY(SELECT id FROM victims))
)
DELETE FROM outhaul.job_chunk WHERE id = ANY (ARRAY(SELECT id FROM victims))
