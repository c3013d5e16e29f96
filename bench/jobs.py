"""`jobs`: jobs that do nothing, by Outhaul and by other job queues on PostgreSQL.

Each run has a fresh database. In each round every queue runs once in each of its settings; the median of the
rounds counts. `even` is the setting with about 50 jobs in flight, `best` the one that its makers or we found
fastest; only the first setting of a queue is asked for idle pick-ups.
"""

import dataclasses
import json
import os
import statistics
import subprocess

from bench import install, table
from bench.database import commits, fresh
from bench.settings import JOBS, ONLY, PICK_UPS, ROUNDS, program
from bench.table import number, rounds

OURS = "outhaul"
TITLES = {"outhaul": "Outhaul", "river": "River for Rust", "apalis": "apalis-postgres"}


@dataclasses.dataclass
class Setting:
    queue: str
    label: str
    kind: str
    variables: dict
    burns: list = dataclasses.field(default_factory=list)
    pick_ups: list = dataclasses.field(default_factory=list)
    problem: str = ""

    def median(self, figure):
        return statistics.median(burn[figure] for burn in self.burns)

    def pick_up(self, figure):
        return statistics.median(run[figure] for run in self.pick_ups)

    @property
    def wal(self):
        return statistics.median(burn["wal_enqueue"] + burn["wal_run"] for burn in self.burns)


def settings():
    return [
        Setting(OURS, "50 in flight", "even", dict(CONCURRENCY=50)),
        Setting(OURS, "500 in flight", "best", dict(CONCURRENCY=500)),
        Setting(OURS, "2000 in flight", "best", dict(CONCURRENCY=2000)),
        Setting("pg-boss", "1 × batch 50", "even", dict(CONCURRENCY=1, BATCH=50)),
        Setting("pg-boss", "2 × batch 1000; a batch succeeds or fails as one", "best", dict(CONCURRENCY=2, BATCH=1000)),
        Setting("graphile-worker", "24 jobs", "even", dict(CONCURRENCY=24)),
        Setting("graphile-worker", "24 jobs, localQueue 500; deletes its rows", "best",
                dict(CONCURRENCY=24, LOCALQUEUE=500)),
        Setting("river", "50 workers, cooldown 1 ms", "even", dict(CONCURRENCY=50)),
        Setting("river", "500 workers, cooldown 1 ms", "best", dict(CONCURRENCY=500)),
        Setting("apalis", "50 jobs, batch 50", "even", dict(CONCURRENCY=50, BATCH=50)),
        Setting("apalis", "50 jobs, batch 500", "best", dict(CONCURRENCY=50, BATCH=500)),
        Setting("awa", "50 workers, no deadline", "even", dict(CONCURRENCY=50)),
        Setting("awa", "256 workers, no deadline", "best", dict(CONCURRENCY=256)),
    ]


def run(command, mode, setting):
    """One run on a fresh database. A queue that fails in a run is out of the comparison, and says why."""
    sizes = dict(JOBS=JOBS, PICK_UPS=PICK_UPS, DATABASE_URL=fresh("bench_jobs"))
    variables = {name: str(value) for name, value in (sizes | setting.variables).items()}
    try:
        done = subprocess.run([*command, mode], env=os.environ | variables, capture_output=True, text=True, timeout=600)
        figures = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError, subprocess.TimeoutExpired) as problem:
        words = getattr(problem, "stderr", None) or done.stderr
        setting.problem = (str(words).strip().splitlines() or [str(problem)])[-1][:200]
        print(f"  {setting.queue}, {setting.label}: failed: {setting.problem}", flush=True)
        return
    if mode == "burn":
        setting.burns.append(figures)
        print(f"  {setting.queue}, {setting.label}: {figures['jobs_per_s']:,.0f} jobs/s, "
              f"{figures['enqueued_per_s']:,.0f} enqueued/s, "
              f"WAL {figures['wal_enqueue']:,.0f} + {figures['wal_run']:,.0f} B/job", flush=True)
    else:
        setting.pick_ups.append(figures)
        print(f"  {setting.queue}, {setting.label}: picked up after {figures['p50_ms']:.2f} ms, "
              f"p99 {figures['p99_ms']:.2f} ms", flush=True)


def measure(commands, entries):
    for round_ in range(ROUNDS):
        print(f"jobs, round {round_ + 1} of {ROUNDS}:", flush=True)
        # Another one goes first in each round, so that a machine that slows down slows all.
        for place in range(len(entries)):
            setting = entries[(round_ * 5 + place) % len(entries)]
            if not setting.problem:
                run(commands[setting.queue], "burn", setting)
        for setting in entries if PICK_UPS else ():
            if setting.kind == "even" and not setting.problem:
                run(commands[setting.queue], "latency", setting)


def jobs(_folder):
    pinned = install.versions()
    wanted = [peer for peer in (OURS, *pinned) if not ONLY or peer in ONLY]
    commands, missing = install.peers(wanted)
    commands[OURS] = [program("bench-noop")]
    entries = [setting for setting in settings() if setting.queue in wanted and setting.queue in commands]
    measure(commands, entries)
    named = lambda queue: f"{TITLES.get(queue, queue)} {pinned.get(queue, '')}".strip()
    details(entries, named)
    compare(entries, named)
    disk()
    for queue, reason in missing.items():
        table.add("jobs", f"{named(queue)} is missing", reason)
    for setting in entries:
        if setting.problem:
            table.add("jobs", f"{named(setting.queue)} failed", f"{setting.label}: {setting.problem}")


def compare(entries, named):
    good = [setting for setting in entries if not setting.problem and setting.burns]
    ours = [setting for setting in good if setting.queue == OURS]
    theirs = [setting for setting in good if setting.queue != OURS]
    if not ours:
        return
    rate = lambda setting: setting.median("jobs_per_s")
    even = next((setting for setting in ours if setting.kind == "even"), None)
    best = max(ours, key=rate)
    size = f"{JOBS:,} no-op jobs"

    def beside(what, mine, rival, value, unit, must, aim):
        label, ratio = "", ""
        if rival:
            label = f"{named(rival.queue)}, {rival.label}: {number(value(rival))} {unit}"
            ratio = f"{value(mine) / value(rival):.2f}"
        table.add("jobs", what, f"{number(value(mine))} {unit}", label, ratio, must, aim)

    if even:
        rivals = [setting for setting in theirs if setting.kind == "even"]
        beside(f"{size}, 50 in flight; fastest peer", even, max(rivals, key=rate, default=None), rate, "jobs/s",
               "≥ 1.4", "2")
    must = {"apalis": "> 1", "awa": "> 1", "river": "≥ 0.8"}
    for queue in dict.fromkeys(setting.queue for setting in theirs):
        rival = max((setting for setting in theirs if setting.queue == queue), key=rate)
        beside(f"{size}, best settings (ours: {best.label})", best, rival, rate, "jobs/s", must.get(queue, ""), "> 1")
    if not theirs:
        beside(f"{size}, best setting: {best.label}", best, None, rate, "jobs/s", "", "")
    if even and even.pick_ups:
        rivals = [setting for setting in theirs if setting.pick_ups]
        for figure, must, aim in (("p50_ms", "≤ 1.2", "< 1"), ("p99_ms", "", "≤ 1.5 ms")):
            value = lambda setting: setting.pick_up(figure)
            beside(f"idle pick-up, {figure[:3]}; fastest peer", even, min(rivals, key=value, default=None), value, "ms",
                   must, aim)
    wal = lambda setting: setting.wal
    beside("WAL per no-op job, 50 in flight; leanest peer", even or best, min(theirs, key=wal, default=None), wal, "B",
           "≤ 2,000 B", "1,600 B")
    enqueued = lambda setting: setting.median("enqueued_per_s")
    rivals = [setting for setting in theirs if setting.queue == "apalis"] or theirs
    beside("enqueue in batches of 1,000", max(ours, key=enqueued), max(rivals, key=enqueued, default=None), enqueued,
           "jobs/s", "≥ 80,000/s", "≥ apalis")


def details(entries, named):
    head = ["queue", "setting", "jobs/s (rounds)", "enqueued/s", "idle pick-up p50 / p99", "WAL per job, enqueue + run"]
    lines = []
    for setting in entries:
        if not setting.burns:
            continue
        rates = [burn["jobs_per_s"] for burn in setting.burns]
        picked = ""
        if setting.pick_ups:
            picked = f"{setting.pick_up('p50_ms'):.2f} / {setting.pick_up('p99_ms'):.2f} ms"
        lines.append([named(setting.queue), setting.label, f"{number(statistics.median(rates))} ({rounds(rates)})",
                      number(setting.median("enqueued_per_s")), picked,
                      f"{number(setting.median('wal_enqueue'))} + {number(setting.median('wal_run'))} B"])
    table.DETAILS.append((f"{JOBS:,} jobs that do nothing", head, lines))


def disk():
    """What the commits of this disk cost, which bounds every queue that commits job by job."""
    found = [(clients, commits(clients)) for clients in (1, 20)]
    words = [f"{number(tps)} with {clients} client{'s' if clients > 1 else ''}" for clients, tps in found if tps]
    if words:
        table.add("jobs", "commits of one inserted row per second, by pgbench", "; ".join(words))
