"""`dev.py recipes`: the recipes of clients of three replicas, each a process, whose leaders are killed with kill -9.

    increments   additions and compare-and-sets that are retried: each counts once, and has one result
    watches      every change comes once and in order, through new leaders, snapshots and logs that are cut

The short form takes a minute. `--kills 1000`, or `--changes 100000 --kills 20 --snapshots 5`, are the long ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kraftlib.cli.cluster import Cluster
from tests.chaos.increments import prove_increments
from tests.chaos.killing import SETTINGS, Violation
from tests.chaos.run import leaves
from tests.chaos.watches import prove_watches

INCREMENTS, WATCHES = "increments", "watches"


async def prove(proof: str, directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run one proof over a quorum of its own, and return its figures. Raises: Violation."""
    async with Cluster(directory, settings=SETTINGS, program="tools.bench.service") as cluster:
        if proof == INCREMENTS:
            return await prove_increments(cluster, kills=options.kills, tell=say)
        return await prove_watches(
            cluster, changes=options.changes, kills=options.kills, snapshots=options.snapshots, tell=say
        )


def say(text: str) -> None:
    """Tell the person at the terminal what goes on; programs read stdout."""
    print(f"recipes: {text}", file=sys.stderr, flush=True)


def _run(proof: str, options: argparse.Namespace) -> bool:
    """Run one proof and print what it has found; False, if something was violated. The directories are kept then."""
    directory = Path(tempfile.mkdtemp(prefix="kraftlib-recipes-"))
    found = None
    try:
        found = asyncio.run(prove(proof, directory, options))
    except* Violation as errors:
        for error in leaves(errors):
            say(f"{proof}: VIOLATED: {error}; the directories are in {directory}")
    if found is not None:
        shutil.rmtree(directory)
        print(json.dumps({"proof": proof, **found}), flush=True)
    return found is not None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proofs; 0 if nothing was violated."""
    parser = argparse.ArgumentParser(prog="dev.py recipes", description=__doc__.partition("\n")[0])
    parser.add_argument("proof", nargs="*", metavar="PROOF", help=f"{INCREMENTS}, {WATCHES} (both)")
    parser.add_argument("--kills", type=int, default=10, help="leaders that are killed, by each proof (10)")
    parser.add_argument("--changes", type=int, default=20_000, help="changes that are watched (20,000)")
    parser.add_argument("--snapshots", type=int, default=3, help="moments at which every replica writes one (3)")
    options = parser.parse_args(arguments)
    proofs = options.proof or [INCREMENTS, WATCHES]
    for proof in proofs:
        if proof not in (INCREMENTS, WATCHES):
            parser.error(f"{proof!r} is none of {INCREMENTS}, {WATCHES}")
    for name in ("kills", "changes", "snapshots"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: at least 1")
    good = [_run(proof, options) for proof in proofs]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
