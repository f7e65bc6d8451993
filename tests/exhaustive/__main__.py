"""Tries everything that can happen to a few real cores: `python dev.py exhaustive`.

--long            larger worlds, too: hours
--scene NAME      only this one (more than one may be named)
--states-max N    so many states of each at most; then "not to the end" is said
--plant NAME      with a bug put into the core: it must be found
--jobs N          so many scenes at a time: one per processor unless said otherwise
--output json     one line of JSON for each scene
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence

import attrs

from tests.exhaustive.plants import PLANTS
from tests.exhaustive.scenes import LONG, SHORT
from tests.exhaustive.search import Result
from tests.exhaustive.tasks import SCENES, search


def main(arguments: Sequence[str]) -> int:
    """Search the scenes; the exit status is 1 if something does not hold (or, with --plant, if everything does)."""
    parser = argparse.ArgumentParser(
        prog="dev.py exhaustive", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--scene", action="append", choices=[scene.name for scene in LONG])
    parser.add_argument("--states-max", type=int)
    parser.add_argument("--plant", choices=sorted(PLANTS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    options = parser.parse_args(arguments)
    names = options.scene or [scene.name for scene in (LONG if options.long else SHORT)]
    if options.plant and not options.scene:
        names = [PLANTS[options.plant].scene]
    tasks = [(name, options.states_max, options.plant, options.output == "text") for name in names]
    results = []
    # A process of its own for each scene: what one keeps in its caches is of no use to another.
    with multiprocessing.get_context("spawn").Pool(min(options.jobs, len(tasks)), maxtasksperchild=1) as pool:
        for result in pool.imap(search, tasks):
            results.append(result)
            print(json.dumps(attrs.asdict(result)) if options.output == "json" else text_of(result), flush=True)
    found = [result for result in results if result.violation is not None]
    if options.plant:
        return int(not found)
    if options.output == "text":
        states = sum(result.states for result in results)
        print(f"{states:,} states in {sum(result.seconds for result in results):.0f} s of all: {len(found)} violations")
    return int(bool(found))


def text_of(result: Result) -> str:
    """Say what came of a scene."""
    whole = "to the end" if result.whole else "not to the end"
    head = (
        f"{result.scene}: {SCENES[result.scene].about}\n"
        f"  {result.states:,} states, {result.steps:,} steps, depth {result.depth}, "
        f"{result.handled:,} events handled, {result.seconds:.0f} s, {whole}"
    )
    if result.violation is None:
        return head
    steps = "\n".join(f"  {number:3} {step}" for number, step in enumerate(result.trace))
    return f"{head}\n  VIOLATION: {result.violation}\n{steps}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
