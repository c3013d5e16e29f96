"""`deliveries`: chunks of 100 rows through RabbitMQ and ActiveMQ, against the delivery by the database.

An API process and a worker process of each kind run the same job in turn.
"""

import os
import statistics
import urllib.request

from bench import table
from bench.database import fresh, psql
from bench.outhaul import DAYS, configure, make_small, run_job, serve, small_job, timed
from bench.settings import CONCURRENCY, CONNECTIONS, DELIVERY_CHUNKS, ROUNDS, VERBS
from bench.table import number, ratio

BROKERS = ("rabbitmq", "activemq")


def deliveries(folder):
    source = fresh("bench_source")
    psql(source, *make_small(DELIVERY_CHUNKS))
    kinds = ("database", *BROKERS)
    for kind in kinds:
        lines = f'[delivery]\nkind = "{kind}"'
        if kind in BROKERS:
            lines += f'\nurl = "{os.environ[f"OUTHAUL_TEST_{kind.upper()}_URL"]}"'
        # Each kind has a database of its own: none looks at what another left.
        configure(f"{folder}/{kind}", fresh(f"bench_{kind}"), source, lines)
    rates = {kind: [] for kind in kinds}
    for round_ in range(ROUNDS):
        print(f"deliveries, round {round_ + 1} of {ROUNDS}:", flush=True)
        # Another one goes first in each round, so that a machine that slows down slows all.
        for place in range(len(kinds)):
            kind = kinds[(round_ + place) % len(kinds)]
            rates[kind].append(DELIVERY_CHUNKS / delivered(f"{folder}/{kind}"))
            print(f"  {kind}: {rates[kind][-1]:,.0f} chunks/s", flush=True)
    database = f"database: {number(statistics.median(rates['database']))} chunks/s"
    what = f"{DELIVERY_CHUNKS:,} chunks of 100 rows, concurrency {CONCURRENCY}, {CONNECTIONS} connections"
    for kind in BROKERS:
        table.add("deliveries", f"{what}, by {kind}", f"{number(statistics.median(rates[kind]))} chunks/s", database,
                  ratio(rates[kind], rates["database"]), "≥ 0.7", "0.9")


def delivered(folder):
    """Runs the job with new processes, which have run a small one before; returns its seconds."""
    with serve(folder, "api") as (_, base), serve(folder, "worker,scheduler") as (_, worker):
        run_job(base, small_job(DAYS))
        before = verbs(worker)
        seconds = timed(lambda: run_job(base, small_job(DELIVERY_CHUNKS)))
        if VERBS:
            print_verbs(before, verbs(worker))
    return seconds


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


def print_verbs(before, after):
    calls = [(verb, now, before.get(verb, (0, 0))) for verb, now in after.items()]
    for verb, (count, took), (old, had) in sorted(calls, key=lambda call: call[2][1] - call[1][1]):
        if count > old:
            print(f"    {verb:24} {count - old:6.0f} calls, {took - had:7.3f} s, "
                  f"{1000 * (took - had) / (count - old):7.2f} ms each", flush=True)
