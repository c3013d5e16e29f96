"""`exports`: files, against plain clients of PostgreSQL that do the same with nothing around it.

1. One large CSV export, and two at once, against as many `psql \\copy` of the same query plus fsync.
2. Many chunks of 100 rows, to a folder and to S3, against bare loops of COPY on as many connections. The loops
   are `bench/bare`: they do not queue, retry, fence, check or record anything.
Every round has its peers' rounds right before it.
"""

import os
import statistics
import subprocess

from bench import table
from bench.database import fresh, psql
from bench.outhaul import DAYS, LARGE, SMALL, configure, make_small, peak_mib, run_job, serve, small_job, timed
from bench.settings import CHUNKS, CONCURRENCY, CONNECTIONS, PUTS, ROUNDS, ROWS, program
from bench.table import number, ratio


def exports(folder):
    source = fresh("bench_source")
    psql(source, f"create table large as select n from generate_series(1, {ROWS}) n", *make_small(CHUNKS))
    configure(f"{folder}/files", fresh("bench_files"), source)
    with serve(f"{folder}/files") as (process, base):
        large(folder, source, process, base)
        small_to_files(folder, source, base)
    configure(f"{folder}/s3", fresh("bench_s3"), source, s3_storage())
    with serve(f"{folder}/s3") as (_, base):
        small_to_s3(source, base)


def large(folder, source, process, base):
    took, peaks = {}, {}
    for round_ in range(ROUNDS):
        for streams in (1, 2):
            peer = timed(lambda: large_by_psql(folder, source, streams))
            items = [{"key": f"L{stream}", "effectiveDates": ["20200101"]} for stream in range(streams)]
            body = {"dataset": "large", "items": items, "output": {"force": True}}
            mine = timed(lambda: run_job(base, body))
            took.setdefault(streams, []).append((mine, peer))
            peaks.setdefault(streams, peak_mib(process))  # a process's peak never falls: only the first round tells
            print(f"exports, round {round_ + 1} of {ROUNDS}: {streams} at once: {mine:.2f} s, psql {peer:.2f} s",
                  flush=True)
    size = os.path.getsize(f"{folder}/psql-0.csv") / 1e9
    for stream in (0, 1):
        os.remove(f"{folder}/psql-{stream}.csv")
    for streams, must, aim in ((1, "≥ 0.95", "1.0"), (2, "", "≥ 1.0")):
        ours, peers = ([streams * size / seconds for seconds in side] for side in zip(*took[streams]))
        what = f"one CSV export of {size:.2f} GB" if streams == 1 else "two of them at once"
        table.add("exports", what, f"{statistics.median(ours):.3f} GB/s",
                  f"psql \\copy + fsync: {statistics.median(peers):.3f} GB/s", ratio(ours, peers), must, aim)
    table.add("exports", "peak memory of the whole process, one and two exports", f"{peaks[1]:.0f}, {peaks[2]:.0f} MiB",
              must="≤ 64 MiB for one")


def large_by_psql(folder, source, streams):
    paths = [f"{folder}/psql-{stream}.csv" for stream in range(streams)]
    running = [subprocess.Popen(["psql", "-qX", source, "-c", f"\\copy ({LARGE}) to '{path}' csv header"])
               for path in paths]
    assert all([process.wait() == 0 for process in running]), "psql failed"
    for path in paths:
        with open(path, "rb") as written:
            os.fsync(written.fileno())


def bare(source, target, put=0):
    """A bare loop over the chunks of the small job, to a folder or with `put` PUTs in flight to S3."""
    query = SMALL.format(key="'K{key}'", day="date '2020-01-01' + {day}")
    arguments = [source, query, CHUNKS, DAYS, CONNECTIONS, target, put]
    subprocess.run([program("bench-bare"), *map(str, arguments)], check=True)


def small_to_files(folder, source, base):
    loops = {"bare loop": "plain", "bare loop with fsync of file and folder": "fsync"}
    ours, peers = [], {name: [] for name in loops}
    for round_ in range(ROUNDS):
        for name, kind in loops.items():
            new = f"{folder}/{kind}-{round_}"
            os.makedirs(new)
            peers[name].append(CHUNKS / timed(lambda: bare(source, f"{kind}:{new}")))
        ours.append(CHUNKS / timed(lambda: run_job(base, small_job(CHUNKS))))
        print(f"exports, round {round_ + 1} of {ROUNDS}: {ours[-1]:,.0f} chunks/s; "
              + "; ".join(f"{name} {rates[-1]:,.0f}" for name, rates in peers.items()), flush=True)
    what = f"{CHUNKS:,} chunks of 100 rows to files, {CONNECTIONS} connections, concurrency {CONCURRENCY}"
    for name, must, aim in (("bare loop with fsync of file and folder", "≥ 0.5", "0.7"), ("bare loop", "", "")):
        table.add("exports", what, f"{number(statistics.median(ours))} chunks/s",
                  f"{name}: {number(statistics.median(peers[name]))} chunks/s", ratio(ours, peers[name]), must, aim)


def small_to_s3(source, base):
    ours, peers = [], []
    for round_ in range(ROUNDS):
        peers.append(CHUNKS / timed(lambda: bare(source, "s3:", PUTS)))
        ours.append(CHUNKS / timed(lambda: run_job(base, small_job(CHUNKS))))
        print(f"exports, round {round_ + 1} of {ROUNDS}: to S3 {ours[-1]:,.0f} chunks/s; "
              f"bare loop {peers[-1]:,.0f}", flush=True)
    table.add("exports", "the same to S3", f"{number(statistics.median(ours))} chunks/s",
              f"bare loop of COPY + PUT, {PUTS} in flight: {number(statistics.median(peers))} chunks/s",
              ratio(ours, peers), "≥ 0.7", "0.9")


def s3_storage():
    variable = lambda name: os.environ[f"OUTHAUL_TEST_S3_{name}"]
    return f"""[storage]
url = "s3://{variable("BUCKET")}"
endpoint = "{variable("ENDPOINT")}"
region = "us-east-1"
allow_http = true
access_key_id = "{variable("ACCESS_KEY_ID")}"
secret_access_key = "{variable("SECRET_ACCESS_KEY")}"
"""
