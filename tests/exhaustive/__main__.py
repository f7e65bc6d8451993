"""Tries everything that can happen to a few real cores: `python dev.py exhaustive`.

--long            larger worlds, too: hours
--scene NAME      only this one (more than one may be named)
--states-max N    so many states of each at most; then "not to the end" is said
--plant NAME      with a bug put into the core: it must be found
--output json     one line of JSON for each scene
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
from collections.abc import Sequence

import attrs

from tests.exhaustive.plants import PLANTS, planted
from tests.exhaustive.scenes import LONG, SHORT
from tests.exhaustive.search import Result, Search


def main(arguments: Sequence[str]) -> int:
    """Search the scenes; the exit status is 1 if something does not hold (or, with --plant, if everything does)."""
    parser = argparse.ArgumentParser(
        prog="dev.py exhaustive", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--scene", action="append", choices=[scene.name for scene in LONG])
    parser.add_argument("--states-max", type=int)
    parser.add_argument("--plant", choices=sorted(PLANTS))
    parser.add_argument("--output", choices=["text", "json"], default="text")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    scenes = (
        [scene for scene in LONG if scene.name in options.scene] if options.scene else LONG if options.long else SHORT
    )
    if options.plant and not options.scene:
        scenes = [scene for scene in LONG if scene.name == PLANTS[options.plant].scene]
    results = []
    with planted(options.plant) if options.plant else contextlib.nullcontext():
        for scene in scenes:
            tell = None if options.output == "json" else lambda line: print(f"  {line}", file=sys.stderr, flush=True)
            result = Search(scene).run(states_max=options.states_max, tell=tell)
            results.append(result)
            print(
                json.dumps(attrs.asdict(result)) if options.output == "json" else text_of(result, scene.about),
                flush=True,
            )
    found = [result for result in results if result.violation is not None]
    if options.plant:
        return int(not found)
    if options.output == "text":
        states = sum(result.states for result in results)
        print(f"{states:,} states in {sum(result.seconds for result in results):.0f} s: {len(found)} violations")
    return int(bool(found))


def text_of(result: Result, about: str) -> str:
    """Say what came of a scene."""
    whole = "to the end" if result.whole else "not to the end"
    head = (
        f"{result.scene}: {about}\n  {result.states:,} states, {result.steps:,} steps, depth {result.depth}, "
        f"{result.handled:,} events handled, {result.seconds:.0f} s, {whole}"
    )
    if result.violation is None:
        return head
    steps = "\n".join(f"  {number:3} {step}" for number, step in enumerate(result.trace))
    return f"{head}\n  VIOLATION: {result.violation}\n{steps}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
