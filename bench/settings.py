"""Sizes and settings, from the environment. `scripts/bench --help` tells what they mean."""

import os


def _number(name, default):
    return int(os.environ.get(name, default))


PROGRAMS = os.environ.get("BENCH_PROGRAMS", "target/release")
CACHE = os.environ.get("BENCH_CACHE", os.path.expanduser("~/.cache/outhaul/bench"))
SERVER = os.environ.get("OUTHAUL_TEST_POSTGRES_URL", "")

ROUNDS = _number("BENCH_ROUNDS", 3)
ONLY = os.environ.get("ONLY", "").split()

JOBS = _number("BENCH_JOBS", 20_000)
PICK_UPS = _number("BENCH_PICK_UPS", 200)

ROWS = _number("BENCH_ROWS", 16_000_000)
CHUNKS = _number("BENCH_CHUNKS", 10_000)
CONNECTIONS = _number("BENCH_CONNECTIONS", 4)
CONCURRENCY = _number("BENCH_CONCURRENCY", 8)
PUTS = _number("BENCH_PUTS", 2 * CONCURRENCY)

DELIVERY_CHUNKS = _number("BENCH_DELIVERY_CHUNKS", 5_000)
VERBS = "BENCH_VERBS" in os.environ

IDLE_SECONDS = _number("BENCH_IDLE_SECONDS", 60)


def program(name):
    return os.path.abspath(f"{PROGRAMS}/{name}")
