"""What statements and API calls cost in a store of 10,000 chunks and in one of 10,000,000. A call that costs more
in the larger one depends on the size of a table.

Both stores are on one server and take turns. Of every statement and call the fastest round counts: what it costs
when nothing else is in the way.
"""

import glob
import json
import os
import statistics
import time

from bench import table
from bench.counting import counting_server, counts_statements
from bench.database import fresh, psql
from bench.outhaul import SMALL, call, configure, make_small, serve
from bench.settings import ROUNDS
from bench.soak.fill import FLAKY, MORE, fill, job, submit

JOBS = {"few": int(os.environ.get("SOAK_FEW_JOBS", 1_000)), "many": int(os.environ.get("SOAK_JOBS", 1_000_000))}
CALLS = int(os.environ.get("SOAK_CALLS", 30))
IDLE_SECONDS = int(os.environ.get("SOAK_IDLE_SECONDS", 70))
MUST = 1.2
SQL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/store/src/postgres/sql/*.sql")

STATEMENTS = "select coalesce(json_agg(json_build_object('query', query, 'calls', calls, 'ms', mean_exec_time, " \
    "'blocks', (shared_blks_hit + shared_blks_read) / calls)), '[]') from pg_stat_statements " \
    "join pg_database d on d.oid = dbid where d.datname = '{database}' and query !~ '^(BEGIN|COMMIT|ROLLBACK|SET|SHOW)'"


def sizes(folder):
    with counting_server() as server:
        if not counts_statements(server):
            raise SystemExit("soak: PostgreSQL's extension pg_stat_statements is needed")
        source = fresh("soak_source", server)
        psql(source, *make_small(1_000), FLAKY, "create table large (n int)")
        more = MORE.format(source=source, small=SMALL.format(key=":key", day=":effective_date"))
        for size, jobs in JOBS.items():
            database = fresh(f"soak_{size}", server)
            configure(f"{folder}/{size}", database, source, more)
            start = time.monotonic()
            print(f"{size}: {fill(f'{folder}/{size}', database, jobs)}, in {time.monotonic() - start:.0f} s", flush=True)
        fastest = {}
        for round_ in range(ROUNDS):
            for size in JOBS:
                print(f"round {round_ + 1} of {ROUNDS}: {size}", flush=True)
                for what, cost in measure(f"{folder}/{size}", server, f"soak_{size}").items():
                    mine = fastest.setdefault(what, {})
                    mine[size] = min(cost, mine.get(size, cost))
    report(fastest)


def measure(folder, server, database):
    """Milliseconds and pages of each call and statement, in one round of everything."""
    with serve(folder) as (_, base):
        for _ in range(2):
            use(base)  # plans are made, pages are read
        psql(server, "select pg_stat_statements_reset()")
        calls = use(base)
        time.sleep(IDLE_SECONDS)  # sweeps that find nothing
        found = json.loads(psql(server, STATEMENTS.format(database=database)))
    statements = {}
    for row in found:
        what = ("statement", name_of(row["query"]))
        if what in statements:  # two statements from one file
            what = ("statement", plain(row["query"])[:90])
        statements[what] = (row["ms"], row["blocks"])
    return {("call", what): (cost, 0) for what, cost in calls.items()} | statements


def name_of(query):
    """The file in `sql/` that a statement is most like, or its text. Constants are `$n` in what was counted."""
    words = plain(query)
    alike = {path: len(os.path.commonprefix([words, plain(open(path).read())])) for path in glob.glob(SQL)}
    path = max(alike, key=alike.get)
    return os.path.basename(path)[:-len(".sql")] if alike[path] >= 30 else words[:90]


def plain(sql):
    lines = [line.split("--")[0] for line in sql.splitlines()]
    return " ".join(" ".join(lines).split())


def use(base):
    """Uses everything; returns the median milliseconds of each API call."""
    took = {}

    def timed(what, path, body=None):
        start = time.perf_counter()
        answer = call(base, path, body)
        took.setdefault(what, []).append(1000 * (time.perf_counter() - start))
        return answer

    for place in range(CALLS):
        done = timed("POST /jobs", "/jobs", job(f"K{place % 10}", output={"force": True}))["jobId"]
        while call(base, f"/jobs/{done}")["status"] != "COMPLETED":
            time.sleep(0.02)
        waiting = submit(base, job("K9", "parked"))
        for path in ("", "/chunks", "/history", "/files"):
            timed(f"GET /jobs/J{path}", f"/jobs/{done}{path}")
        timed("POST /jobs/J/priority", f"/jobs/{waiting}/priority", {"priority": 7})
        timed("POST /jobs/J/cancel", f"/jobs/{waiting}/cancel", {})
        for status in ("SUBMITTED", "IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED"):
            timed(f"GET /jobs?status={status}", f"/jobs?status={status}")
        for path in ("/jobs", "/jobs?dataset=small", "/queues", "/dead-letters", "/workers", "/audit"):
            timed(f"GET {path}", path)
    return {what: statistics.median(values) for what, values in took.items()}


def report(fastest):
    lines = []
    for (kind, what), cost in fastest.items():
        if len(cost) == 2:
            (few, few_blocks), (many, many_blocks) = cost["few"], cost["many"]
            lines.append((many / few, [kind, what, f"{few:.3f}", f"{many:.3f}", f"{many / few:.2f}",
                                       f"{few_blocks} → {many_blocks}" if kind == "statement" else ""]))
    lines.sort(reverse=True)
    head = ["kind", "what", "ms, few", "ms, many", "ratio", "pages"]
    print(f"\n{JOBS['few']:,} jobs beside {JOBS['many']:,} jobs, ten chunks each:")
    print(table.aligned(head, [cells for _, cells in lines]))
    above = sum(ratio > MUST for ratio, _ in lines)
    print(f"{above} of {len(lines)} above {MUST} (must: none)")
