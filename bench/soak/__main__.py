"""Runs `sizes` and `export`, or the one that is named, and prints what each found."""

import shutil
import sys
import tempfile

from bench.soak.export import export
from bench.soak.sizes import sizes

PARTS = {"sizes": sizes, "export": export}


def main():
    for part in sys.argv[1:] or PARTS:
        folder = tempfile.mkdtemp(prefix="outhaul-soak-")
        try:
            PARTS[part](folder)
        finally:
            shutil.rmtree(folder)


main()
