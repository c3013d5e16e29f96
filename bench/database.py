"""Databases of the private PostgreSQL server."""

import os
import re
import subprocess
import urllib.parse

from bench.settings import SERVER


def url_of(database, server=SERVER):
    return urllib.parse.urlsplit(server)._replace(path=f"/{database}").geturl()


def psql(url, *commands):
    """Runs commands, each in a transaction of its own, and returns what they print."""
    arguments = [argument for command in commands for argument in ("-c", command)]
    environment = dict(os.environ, PGOPTIONS="-c client_min_messages=warning")
    done = subprocess.run(["psql", "-qXAt", "-v", "ON_ERROR_STOP=1", url, *arguments],
                          check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def fresh(database, server=SERVER):
    """An empty database, and no checkpoint due; returns its URL."""
    psql(url_of("postgres", server), f"drop database if exists {database} with (force)",
         f"create database {database}", "checkpoint")
    return url_of(database, server)


def version():
    return psql(SERVER, "show server_version").split()[0]


def commits(clients):
    """Commits of one inserted row per second, or None without pgbench: how fast this disk is."""
    url = fresh("bench_commits")
    psql(url, "create table t (id bigserial primary key, v text)")
    script = "/dev/stdin"
    try:
        done = subprocess.run(["pgbench", "-n", "-f", script, "-c", str(clients), "-T", "4", url],
                              input="insert into t (v) values ('x');", stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"^tps = ([0-9.]+)", done.stdout, re.MULTILINE)
    return float(found[1]) if found else None
