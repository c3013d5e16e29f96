"""One export of many gigabytes: the memory of the process that does it must not grow with the file."""

import os

from bench.database import fresh, psql
from bench.outhaul import configure, peak_mib, run_job, serve, timed

GIGABYTES = float(os.environ.get("SOAK_GB", 10))
ROWS = 10_000_000
ROW_BYTES = 97.5  # about; a job's size is what is printed


def export(folder):
    source = fresh("soak_source")
    # A view repeats a table, so that the source's disk need not hold as much as the file.
    times = max(1, round(GIGABYTES * 1e9 / ROW_BYTES / ROWS))
    rows = min(ROWS, int(GIGABYTES * 1e9 / ROW_BYTES))
    psql(source, f"create table base as select n from generate_series(1, {rows}) n", "create table small (n int)",
         f"create view large as select n from generate_series(1, {times}) again cross join base", "vacuum analyze base")
    configure(folder, fresh("soak_export"), source)
    with serve(folder) as (process, base):
        body = {"dataset": "large", "items": [{"key": "L", "effectiveDates": ["20200101"]}]}
        seconds = timed(lambda: run_job(base, body))
        peak = peak_mib(process)
    size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names
               if name.endswith(".csv"))
    print(f"one export of {size / 1e9:.2f} GB: {seconds:.0f} s, {size / seconds / 1e6:.0f} MB/s, "
          f"peak memory {peak:.0f} MiB (must: ≤ 64 MiB)", flush=True)
