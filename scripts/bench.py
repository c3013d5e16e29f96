"""Ratios, measured in one run on one machine. Standard library only. Name the parts to run; all by default.

`exports`, against plain `psql`:
1. One large CSV export to a local file, against `psql \\copy` of the same query plus fsync.
2. Many chunks of 100 rows, against a bare loop of `\\copy` on as many connections.
`deliveries`, against the delivery by the database:
3. Many chunks of 100 rows through RabbitMQ and through ActiveMQ, by an API and a worker process.
All alternate with their peer, so that a busy machine slows both.
"""

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

BINARY = os.path.abspath(sys.argv[1])
URL = os.environ["OUTHAUL_TEST_POSTGRES_URL"]
ROWS = int(os.environ.get("BENCH_ROWS", 16_000_000))
CHUNKS = int(os.environ.get("BENCH_CHUNKS", 10_000))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", 3))
DELIVERY_CHUNKS = int(os.environ.get("BENCH_DELIVERY_CHUNKS", 5_000))
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", 4))
CONNECTIONS = int(os.environ.get("BENCH_CONNECTIONS", 4))
VERBS = "BENCH_VERBS" in os.environ
DAYS = 100
BROKERS = ("rabbitmq", "activemq")

LARGE = "select n, md5(n::text) as a, n * 1.25 as price, timestamp '2025-01-01' + n * interval '1 second' as at, " \
    "n % 97 as bucket, 'position ' || n as label, n % 2 = 0 as open from large"
SMALL = "select n, key, day, md5(n::text) as v from small where key = {key} and day = {day}"

CONFIG = """
[database]
url = "{database}"
{delivery}
[worker]
concurrency = {concurrency}
[limits]
max_chunks_per_job = 1000000
max_body_bytes = 200000000
[sources.bench]
url = "{url}"
max_concurrent = {connections}
statement_timeout = "1h"
[datasets.large]
source = "bench"
query = "{large} where :key is not null and :effective_date is not null"
[datasets.small]
source = "bench"
query = "{small}"
"""


def psql(*commands):
    arguments = [argument for command in commands for argument in ("-c", command)]
    environment = dict(os.environ, PGOPTIONS="-c client_min_messages=warning")
    subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", URL, *arguments], check=True, env=environment)


def call(base, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def run_job(base, body):
    job = call(base, "/jobs", body)
    while job["status"] not in ("COMPLETED", "FAILED", "CANCELLED"):
        time.sleep(0.02)
        job = call(base, "/jobs/" + job["jobId"])
    assert job["status"] == "COMPLETED", job
    return job


def peak_mib(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def configure(folder, database=URL, delivery=""):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/outhaul.toml", "w") as config:
        small = SMALL.format(key=":key", day=":effective_date")
        config.write(CONFIG.format(url=URL, database=database, delivery=delivery, concurrency=CONCURRENCY,
                                   connections=CONNECTIONS, large=LARGE, small=small))


@contextlib.contextmanager
def serve(folder, roles="api,worker,scheduler"):
    """A process, and where it answers: for its health alone, if it has no API."""
    with socket.socket() as spare:
        spare.bind(("127.0.0.1", 0))
        port = spare.getsockname()[1]
    listen = "LISTEN" if "api" in roles else "HEALTH_LISTEN"
    environment = dict(os.environ, OUTHAUL_LOG=os.environ.get("OUTHAUL_LOG", "warn"))
    environment[f"OUTHAUL__SERVER__{listen}"] = f"127.0.0.1:{port}"
    command = [BINARY, "serve", "--roles", roles, "--config", f"{folder}/outhaul.toml"]
    process = subprocess.Popen(command, env=environment)
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(base + "/readyz").close()
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        else:
            raise SystemExit("the server did not become ready")
        yield process, base
    finally:
        process.terminate()
        process.wait()


def large_by_psql(folder):
    path = f"{folder}/psql.csv"
    psql(f"\\copy ({LARGE}) to '{path}' csv header")
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def make_small(chunks):
    psql("drop table if exists small",
         f"create table small as select n, 'K' || k as key, date '2020-01-01' + d as day "
         f"from generate_series(0, {chunks // DAYS - 1}) k, generate_series(0, {DAYS - 1}) d, generate_series(1, 100) n",
         "create index on small (key, day)", "vacuum analyze")


def small_job(chunks):
    dates = [time.strftime("%Y%m%d", time.gmtime(1577836800 + 86400 * day)) for day in range(DAYS)]
    items = [{"key": f"K{key}", "effectiveDates": dates} for key in range(chunks // DAYS)]
    return {"dataset": "small", "items": items, "output": {"force": True}}


def small_by_psql(folder):
    """A bare loop of COPYs on as many connections as Outhaul may use."""
    scripts = [open(f"{folder}/loop-{n}.sql", "w") for n in range(CONNECTIONS)]
    for chunk in range(CHUNKS):
        query = SMALL.format(key=f"'K{chunk // DAYS}'", day=f"date '2020-01-01' + {chunk % DAYS}")
        print(f"\\copy ({query}) to '{folder}/loop-{chunk}.csv' csv header", file=scripts[chunk % CONNECTIONS])
    for script in scripts:
        script.close()

    def loop():
        running = [subprocess.Popen(["psql", "-qX", URL, "-f", script.name]) for script in scripts]
        assert all(process.wait() == 0 for process in running)

    return loop


def report(name, ours, peers, note):
    ratios = [peer / mine for mine, peer in zip(ours, peers)]
    print(f"{name}: {statistics.median(ratios):.2f} × its peer (rounds: "
          f"{', '.join(f'{ratio:.2f}' for ratio in ratios)}); ours {statistics.median(ours):.2f} s, "
          f"peer {statistics.median(peers):.2f} s; {note}", flush=True)


def exports(folder):
    psql(f"create table large as select n from generate_series(1, {ROWS}) n")
    make_small(CHUNKS)
    configure(folder)
    with serve(folder) as (process, base):
        ours, peers = [], []
        for round_ in range(ROUNDS):
            peers.append(timed(lambda: large_by_psql(folder)))
            item = {"key": f"L{round_}", "effectiveDates": ["20200101"]}
            ours.append(timed(lambda: run_job(base, {"dataset": "large", "items": [item]})))
        size = os.path.getsize(f"{folder}/psql.csv")
        os.remove(f"{folder}/psql.csv")
        report(f"one export of {size / 1e9:.2f} GB", ours, peers, f"peak memory {peak_mib(process):.0f} MiB")

        loop = small_by_psql(folder)
        ours, peers = [], []
        for _ in range(ROUNDS):
            peers.append(timed(loop))
            ours.append(timed(lambda: run_job(base, small_job(CHUNKS))))
        report(f"{CHUNKS} chunks of 100 rows", ours, peers,
               f"{CHUNKS / statistics.median(ours):.0f} chunks/s with fsync of every file, {CONNECTIONS} connections")


def verbs(base):
    """How often a process called its store, and for how many seconds, by verb."""
    with urllib.request.urlopen(base + "/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for place, kind in enumerate(("count", "sum")):
        start = f'outhaul_store_seconds_{kind}{{verb="'
        for line in lines:
            if line.startswith(start):
                verb, value = line[len(start):].split('"} ')
                found.setdefault(verb, [0, 0])[place] = float(value)
    return found


def delivered(folder, kind):
    """Runs the job with new processes, which have run a small one before."""
    with serve(folder, "api") as (_, base), serve(folder, "worker,scheduler") as (_, worker):
        run_job(base, small_job(DAYS))
        before = verbs(worker)
        seconds = timed(lambda: run_job(base, small_job(DELIVERY_CHUNKS)))
        after = verbs(worker)
    if VERBS:
        print(f"  {kind}: {seconds:.2f} s; the worker's calls of the store:")
        calls = [(verb, now, before.get(verb, (0, 0))) for verb, now in after.items()]
        for verb, (count, took), (old, had) in sorted(calls, key=lambda call: call[2][1] - call[1][1]):
            if count > old:
                print(f"    {verb:24} {count - old:6.0f} calls, {took - had:7.3f} s, "
                      f"{1000 * (took - had) / (count - old):7.2f} ms each", flush=True)
    return seconds


def deliveries(folder):
    make_small(DELIVERY_CHUNKS)
    kinds = ("database", *BROKERS)
    for kind in kinds:
        # Each has a database of its own: none looks at what another left.
        psql(f"drop database if exists bench_{kind}", f"create database bench_{kind}")
        lines = f'[delivery]\nkind = "{kind}"'
        if kind in BROKERS:
            lines += f'\nurl = "{os.environ[f"OUTHAUL_TEST_{kind.upper()}_URL"]}"'
        database = urllib.parse.urlsplit(URL)._replace(path=f"/bench_{kind}").geturl()
        configure(f"{folder}/{kind}", database, lines)
    took = {kind: [] for kind in kinds}
    for round_ in range(ROUNDS):
        # Another one goes first in each round, so that a machine that slows down slows all.
        for place in range(len(kinds)):
            kind = kinds[(round_ + place) % len(kinds)]
            took[kind].append(delivered(f"{folder}/{kind}", kind))
    rates = {kind: [DELIVERY_CHUNKS / seconds for seconds in took[kind]] for kind in kinds}
    print(f"{DELIVERY_CHUNKS} chunks of 100 rows, concurrency {CONCURRENCY}, {CONNECTIONS} connections:")
    for kind in kinds:
        note = ""
        if kind in BROKERS:
            ratios = [rate / base for rate, base in zip(rates[kind], rates["database"])]
            note = f"; {statistics.median(ratios):.2f} × database (rounds: " \
                f"{', '.join(f'{ratio:.2f}' for ratio in ratios)}; target: 0.70 or more)"
        print(f"  {kind}: {statistics.median(rates[kind]):.0f} chunks/s (rounds: "
              f"{', '.join(f'{rate:.0f}' for rate in rates[kind])}){note}", flush=True)


PARTS = {"exports": exports, "deliveries": deliveries}


def main():
    for part in sys.argv[2:] or PARTS:
        folder = tempfile.mkdtemp(prefix="outhaul-bench-")
        try:
            PARTS[part](folder)
        finally:
            shutil.rmtree(folder)


main()
