"""A PostgreSQL server of its own that counts statements. Counting would slow the servers of other parts down."""

import contextlib
import os
import subprocess

from bench.database import psql


@contextlib.contextmanager
def counting_server():
    """The URL of a server that has pg_stat_statements, if that is installed."""
    services, folder = os.environ["OUTHAUL_TEST_SERVICES"], os.environ["OUTHAUL_TEST_SERVICES_DIR"] + "/counting"
    usual = os.environ.get("OUTHAUL_TEST_PG_OPTIONS", "")

    def start(options):
        environment = dict(os.environ, OUTHAUL_TEST_PG_OPTIONS=options)
        done = subprocess.run([services, "postgres-start", folder], env=environment, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    server = start(f"{usual} -c shared_preload_libraries=pg_stat_statements") or start(usual)
    try:
        yield server
    finally:
        subprocess.run([services, "postgres-stop", folder], check=True)


def counts_statements(server):
    """Whether the server came up with pg_stat_statements, which some packages of PostgreSQL leave out."""
    if psql(server, "show shared_preload_libraries") == "":
        return False
    psql(server, "create extension if not exists pg_stat_statements")
    return True
