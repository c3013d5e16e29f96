-- Only members of pg_read_all_stats see the sessions of other users.
SELECT GREATEST(
           (SELECT max(clock_timestamp() - a.xact_start)
            FROM pg_stat_activity a
            WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
              AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)),
           (SELECT max(clock_timestamp() - p.prepared)
            FROM pg_prepared_xacts p
            WHERE p.database = current_database())) AS oldest_transaction,
       (SELECT s.n_dead_tup FROM pg_stat_user_tables s WHERE s.relid = 'outhaul.job_chunk'::regclass) AS dead_chunks
