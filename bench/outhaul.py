"""An `outhaul serve` process, its configuration, and calls of its API."""

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

from bench.settings import CONCURRENCY, CONNECTIONS, program

LARGE = "select n, md5(n::text) as a, n * 1.25 as price, timestamp '2025-01-01' + n * interval '1 second' as at, " \
    "n % 97 as bucket, 'position ' || n as label, n % 2 = 0 as open from large"
SMALL = "select n, key, day, md5(n::text) as v from small where key = {key} and day = {day}"
DAYS = 100

CONFIG = """
[database]
url = "{database}"
{more}
[worker]
concurrency = {concurrency}
[limits]
max_chunks_per_job = 1000000
max_body_bytes = 200000000
[sources.bench]
url = "{source}"
max_concurrent = {connections}
statement_timeout = "1h"
[datasets.large]
source = "bench"
query = "{large} where :key is not null and :effective_date is not null"
[datasets.small]
source = "bench"
query = "{small}"
"""


def configure(folder, database, source, more=""):
    os.makedirs(folder, exist_ok=True)
    small = SMALL.format(key=":key", day=":effective_date")
    with open(f"{folder}/outhaul.toml", "w") as config:
        config.write(CONFIG.format(database=database, source=source, more=more, concurrency=CONCURRENCY,
                                   connections=CONNECTIONS, large=LARGE, small=small))


@contextlib.contextmanager
def serve(folder, roles="api,worker,scheduler", log="warn"):
    """A process, and where it answers: for its health alone, if it has no API."""
    with socket.socket() as spare:
        spare.bind(("127.0.0.1", 0))
        port = spare.getsockname()[1]
    listen = "LISTEN" if "api" in roles else "HEALTH_LISTEN"
    environment = dict(os.environ, OUTHAUL_LOG=os.environ.get("OUTHAUL_LOG", log))
    environment[f"OUTHAUL__SERVER__{listen}"] = f"127.0.0.1:{port}"
    command = [program("outhaul"), "serve", "--roles", roles, "--config", f"{folder}/outhaul.toml"]
    process = subprocess.Popen(command, env=environment, cwd=folder)
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(base + "/readyz").close()
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        else:
            raise TimeoutError("the server did not become ready")
        yield process, base
    finally:
        process.terminate()
        process.wait()


def call(base, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def run_job(base, body):
    job = call(base, "/jobs", body)
    while job["status"] not in ("COMPLETED", "FAILED", "CANCELLED"):
        time.sleep(0.02)
        job = call(base, "/jobs/" + job["jobId"])
    assert job["status"] == "COMPLETED", job


def small_job(chunks):
    """A job of as many chunks of 100 rows, from the table that `make_small` makes."""
    dates = [time.strftime("%Y%m%d", time.gmtime(1577836800 + 86400 * day)) for day in range(DAYS)]
    items = [{"key": f"K{key}", "effectiveDates": dates} for key in range(chunks // DAYS)]
    return {"dataset": "small", "items": items, "output": {"force": True}}


def make_small(chunks):
    return ["drop table if exists small",
            "create table small as select n, 'K' || k as key, date '2020-01-01' + d as day "
            f"from generate_series(0, {chunks // DAYS - 1}) k, generate_series(0, {DAYS - 1}) d, "
            "generate_series(1, 100) n",
            "create index on small (key, day)", "vacuum analyze"]


def timed(work):
    """Seconds. What was written before goes to the disk first, or its writing would be counted here."""
    os.sync()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_mib(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
