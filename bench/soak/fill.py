"""Fills a store: one job of each kind is made by the product itself, then the rows are multiplied."""

import os
import subprocess
import time

from bench.database import psql
from bench.outhaul import call, serve

# Every job has ten chunks. The source `parked` is paused; chunks of `broken` are DEAD at once, those of `flaky`
# wait a month for their next attempt.
MORE = """[sources.parked]
url = "{source}"
[datasets.parked]
source = "parked"
query = "{small}"
[datasets.broken]
source = "bench"
query = "select 1 / (:key is null)::int as n, :effective_date as day"
retry = {{ max_attempts = 1 }}
[datasets.flaky]
source = "bench"
query = "select fail_for_now(:key), :effective_date as day"
retry = {{ max_attempts = 3, backoff = {{ kind = "fixed", base = "30d" }} }}
"""
FLAKY = "create function fail_for_now(text) returns int language plpgsql as " \
    "$$ begin raise exception 'later' using errcode = '40001'; end $$"
DATES = [f"202001{day:02}" for day in range(1, 11)]
KINDS = 12
SCHEMA = "set search_path = outhaul, public"


def job(key, dataset="small", **more):
    return {"dataset": dataset, "items": [{"key": key, "effectiveDates": DATES}], **more}


def fill(folder, database, jobs):
    """About as many jobs, and ten times as many chunks, in every state but RUNNING: workers bound those."""
    with serve(folder, log="error") as (_, base):
        originals(base, database)
    copies = max(0, jobs // KINDS - 1)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "multiply.sql")
    subprocess.run(["psql", "-qX", "-o", os.devnull, "-v", f"copies={copies}", "-f", script, database], check=True)
    return psql(database, SCHEMA, "select format('%s jobs: %s; %s chunks: %s', "
                "sum(n) filter (where t = 'job'), string_agg(s || ' ' || n, ', ') filter (where t = 'job'), "
                "sum(n) filter (where t = 'chunk'), string_agg(s || ' ' || n, ', ') filter (where t = 'chunk')) "
                "from (select 'job' as t, status as s, count(*) as n from outhaul.job group by 2 union all "
                "select 'chunk', state, count(*) from outhaul.job_chunk group by 2) counts")


def originals(base, database):
    """One job of each kind; as many as KINDS."""
    call(base, "/queues/source:parked/pause", {})
    for place in range(5):
        stays(database, submit(base, job(f"K{place}")), "SUCCESS")
    stays(database, submit(base, job("K0", "broken", onFailure="continue")), "DEAD")
    stays(database, submit(base, job("K1", "broken", onFailure="stop")), "DEAD", "CREATED")
    stays(database, submit(base, job("K0", "flaky")), "RETRY")
    waiting = submit(base, job("K0", "parked"))
    submit(base, job("K1", "parked", dependsOn=[waiting]))
    submit(base, job("K2", "parked", runAt="2040-01-01T00:00:00Z"))
    cancelled = submit(base, job("K3", "parked"))
    call(base, f"/jobs/{cancelled}/cancel", {})
    stays(database, cancelled, "CANCELLED")


def submit(base, body):
    return call(base, "/jobs", body)["jobId"]


def stays(database, job_id, *states):
    """Waits until all chunks of the job are in the states that they stay in."""
    listed = ", ".join(f"'{state}'" for state in states)
    for _ in range(300):
        if psql(database, SCHEMA, "select count(*) from job_chunk c join job j on j.id = c.job_id "
                f"where j.job_id = '{job_id}' and c.state not in ({listed})") == "0":
            return
        time.sleep(0.2)
    raise TimeoutError(f"chunks of {job_id} did not become {listed}")
