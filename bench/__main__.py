"""Runs the parts that are named, or all of them, and prints the table; `--write` also puts it into the docs."""

import shutil
import sys
import tempfile

from bench import document, table
from bench.deliveries import deliveries
from bench.exports import exports
from bench.idle import idle
from bench.jobs import jobs

PARTS = {"jobs": jobs, "exports": exports, "deliveries": deliveries, "idle": idle}


def main():
    wanted = [argument for argument in sys.argv[1:] if argument != "--write"] or list(PARTS)
    for part in wanted:
        folder = tempfile.mkdtemp(prefix="outhaul-bench-")
        try:
            PARTS[part](folder)
        finally:
            shutil.rmtree(folder)
    print()
    print(document.machine())
    print(table.aligned(table.HEAD, [row.cells() for row in table.ROWS]))
    if "--write" in sys.argv:
        document.write()


main()
