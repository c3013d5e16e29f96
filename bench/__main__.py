"""Runs the parts that are named and prints the table; `--write` also puts it into the docs.

A part that fails is a row of the table, and leaves the figures of the others alone.
"""

import shutil
import sys
import tempfile
import traceback

from bench import document, table
from bench.deliveries import deliveries
from bench.exports import exports
from bench.idle import idle
from bench.jobs import jobs

PARTS = {"jobs": jobs, "exports": exports, "deliveries": deliveries, "idle": idle}


def run(part):
    """Whether the part went through."""
    folder = tempfile.mkdtemp(prefix="outhaul-bench-")
    try:
        PARTS[part](folder)
        return True
    except Exception as problem:
        traceback.print_exc()
        table.add(part, f"{part} failed", str(problem).splitlines()[0][:200] if str(problem) else repr(problem))
        return False
    finally:
        shutil.rmtree(folder)


def main():
    parts = [argument for argument in sys.argv[1:] if argument != "--write"]
    went_through = [run(part) for part in parts]
    print()
    print(document.machine())
    print(table.aligned(table.HEAD, [row.cells() for row in table.ROWS]))
    if not all(went_through):
        raise SystemExit("bench: a part failed, see above")
    if "--write" in sys.argv:
        document.write()


main()
