"""`idle`: what a process asks of its database when there is nothing to do.

The database is on a server of its own, which counts statements: counting would slow the other parts down.
"""

import time

from bench import table
from bench.counting import counting_server, counts_statements
from bench.database import fresh, psql
from bench.outhaul import configure, serve
from bench.settings import IDLE_SECONDS, VERBS

SETTLE_SECONDS = 10
OURS = "from pg_stat_statements join pg_database d on d.oid = dbid where d.datname = 'bench_idle'"
STATEMENTS = f"select coalesce(sum(calls), 0) {OURS}"
TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = 'bench_idle'"
LIST = f"select calls || ' × ' || left(regexp_replace(query, '\\s+', ' ', 'g'), 110) {OURS} order by calls desc"


def idle(folder):
    with counting_server() as server:
        database = fresh("bench_idle", server)
        counted = counts_statements(server)
        count = STATEMENTS if counted else TRANSACTIONS
        configure(folder, database, database)
        with serve(folder):
            time.sleep(SETTLE_SECONDS)
            if counted:
                psql(server, "select pg_stat_statements_reset()")
            before, start = int(psql(server, count)), time.monotonic()
            time.sleep(IDLE_SECONDS)
            asked, seconds = int(psql(server, count)) - before, time.monotonic() - start
            if VERBS and counted:
                print(psql(server, LIST), flush=True)
    unit = "statements/s" if counted else "transactions/s, without pg_stat_statements"
    table.add("idle", "a process with all roles and nothing to do", f"{asked / seconds:.1f} {unit}",
              must="≤ 4", aim="2")
