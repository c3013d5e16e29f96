"""Ratios of Outhaul to plain `psql`, in one run on one machine. Standard library only.

1. One large CSV export to a local file, against `psql \\copy` of the same query plus fsync.
2. Many chunks of 100 rows, against a bare loop of `\\copy` on as many connections.
Both alternate with their peer, so that a busy machine slows both.
"""

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
import urllib.request

BINARY = os.path.abspath(sys.argv[1])
URL = os.environ["OUTHAUL_TEST_POSTGRES_URL"]
ROWS = int(os.environ.get("BENCH_ROWS", 16_000_000))
CHUNKS = int(os.environ.get("BENCH_CHUNKS", 10_000))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", 3))
CONNECTIONS = 4

LARGE = "select n, md5(n::text) as a, n * 1.25 as price, timestamp '2025-01-01' + n * interval '1 second' as at, " \
    "n % 97 as bucket, 'position ' || n as label, n % 2 = 0 as open from large"
SMALL = "select n, key, day, md5(n::text) as v from small where key = {key} and day = {day}"

CONFIG = """
[database]
url = "{url}"
[worker]
concurrency = {connections}
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
    subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", URL, *arguments], check=True)


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


def serve(folder):
    with socket.socket() as spare:
        spare.bind(("127.0.0.1", 0))
        port = spare.getsockname()[1]
    with open(f"{folder}/outhaul.toml", "w") as config:
        small = SMALL.format(key=":key", day=":effective_date")
        config.write(CONFIG.format(url=URL, connections=CONNECTIONS, large=LARGE, small=small))
    environment = dict(os.environ, OUTHAUL__SERVER__LISTEN=f"127.0.0.1:{port}", OUTHAUL_LOG="warn")
    process = subprocess.Popen([BINARY, "serve", "--config", f"{folder}/outhaul.toml"], env=environment)
    base = f"http://127.0.0.1:{port}"
    for _ in range(200):
        try:
            urllib.request.urlopen(base + "/readyz").close()
            return process, base
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit("the server did not become ready")


def large_by_psql(folder):
    path = f"{folder}/psql.csv"
    psql(f"\\copy ({LARGE}) to '{path}' csv header")
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def small_by_psql(folder, days):
    """A bare loop of COPYs on as many connections as Outhaul may use."""
    scripts = [open(f"{folder}/loop-{n}.sql", "w") for n in range(CONNECTIONS)]
    for chunk in range(CHUNKS):
        query = SMALL.format(key=f"'K{chunk // days}'", day=f"date '2020-01-01' + {chunk % days}")
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


def main():
    folder = tempfile.mkdtemp(prefix="outhaul-bench-")
    days = 100
    psql(f"create table large as select n from generate_series(1, {ROWS}) n",
         f"create table small as select n, 'K' || k as key, date '2020-01-01' + d as day "
         f"from generate_series(0, {CHUNKS // days - 1}) k, generate_series(0, {days - 1}) d, generate_series(1, 100) n",
         "create index on small (key, day)", "vacuum analyze")
    process, base = serve(folder)
    try:
        ours, peers = [], []
        for round_ in range(ROUNDS):
            peers.append(timed(lambda: large_by_psql(folder)))
            item = {"key": f"L{round_}", "effectiveDates": ["20200101"]}
            ours.append(timed(lambda: run_job(base, {"dataset": "large", "items": [item]})))
        size = os.path.getsize(f"{folder}/psql.csv")
        os.remove(f"{folder}/psql.csv")
        report(f"one export of {size / 1e9:.2f} GB", ours, peers, f"peak memory {peak_mib(process):.0f} MiB")

        loop = small_by_psql(folder, days)
        dates = [time.strftime("%Y%m%d", time.gmtime(1577836800 + 86400 * day)) for day in range(days)]
        items = [{"key": f"K{key}", "effectiveDates": dates} for key in range(CHUNKS // days)]
        ours, peers = [], []
        for _ in range(ROUNDS):
            peers.append(timed(loop))
            body = {"dataset": "small", "items": items, "output": {"force": True}}
            ours.append(timed(lambda: run_job(base, body)))
        report(f"{CHUNKS} chunks of 100 rows", ours, peers,
               f"{CHUNKS / statistics.median(ours):.0f} chunks/s with fsync of every file, {CONNECTIONS} connections")
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


main()
