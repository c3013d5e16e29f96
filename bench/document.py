"""Puts the figures of a run between the marks of `docs/benchmarks.md`; the words around them are written by hand."""

import os
import platform
import subprocess
import time

from bench import table
from bench.database import version
from bench.settings import ROUNDS

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../docs/benchmarks.md")
BEGIN = "<!-- figures: written by `scripts/bench --write` -->"
END = "<!-- end of the figures -->"


def processor():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def commit():
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True,
                           cwd=os.path.dirname(PATH))
    return found.stdout.strip() or "unknown"


def machine():
    return (f"{time.strftime('%Y-%m-%d', time.gmtime())}, commit {commit()}, {os.cpu_count()} cores ({processor()}), "
            f"PostgreSQL {version()}, everything on one machine, {ROUNDS} rounds.")


def figures():
    parts = [machine(), table.markdown(table.HEAD, [row.cells() for row in table.ROWS])]
    for title, head, rows in table.DETAILS:
        parts += [f"### {title}", table.markdown(head, rows)]
    return "\n\n".join(parts)


def write():
    with open(PATH) as document:
        text = document.read()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    with open(PATH, "w") as document:
        document.write(f"{before}{BEGIN}\n\n{figures()}\n\n{END}{after}")
    print(f"written to {os.path.relpath(PATH)}")
