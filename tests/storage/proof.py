"""`python3 dev.py storage`: everything by which the storage is proven, with its figures.

    crash states        every state that a power cut may leave behind each protocol, opened and judged
    errors              every call that changes a file fails once, in every way
    single faults       every kind of byte of every kind of file, damaged in every way
    power cuts          real ones, on ext4; they need root and loop devices

The short form is for CI and takes some minutes on two cores; --long takes an hour. --only NAME runs one of them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from tests.storage.crash.faulty import sweep
from tests.storage.crash.judge import Verdict
from tests.storage.crash.planted import PLANTED
from tests.storage.crash.proof import LONG, Effort, prove
from tests.storage.images.proof import examine
from tests.storage.images.verdict import Outcome
from tests.storage.power.disk import why_impossible

IN_MEMORY = Path("/dev/shm")
SHORT = Effort(most=40, again=3, interruptions=3)
IMAGES, IMAGES_LONG = 10_400, 100_000
CUTS, CUTS_LONG = (90, 25), (2_000, 500)
"""Of one replica, and of three."""


@attrs.define
class Part:
    """One of the proofs, and what came of it."""

    name: str
    figures: dict[str, object] = attrs.Factory(dict)
    bad: list[str] = attrs.Factory(list)
    seconds: float = 0.0


def crash_states(top: Path, *, long: bool, say: Callable[[str], object]) -> Part:
    """Enumerate crash states."""
    tallies = prove(top, LONG if long else SHORT, say=say)
    states = sum(tally.states for tally in tallies)
    part = Part("crash states", bad=[f"{tally.name}: {bad}" for tally in tallies for bad in tally.bad])
    part.figures = {
        "states": states,
        "opened": sum(tally.verdicts[Verdict.OPENED] for tally in tallies),
        "looked like damage": sum(tally.verdicts[Verdict.HALTED] for tally in tallies),
        "bad": sum(tally.verdicts[Verdict.BAD] for tally in tallies),
        "planted bugs": f"{len(PLANTED)}, found by pytest",
    }
    if states < 10_000:
        part.bad.append(f"only {states} states")
    return part


def errors(top: Path, *, long: bool, say: Callable[[str], object]) -> Part:
    """Let every call fail."""
    found = sweep(top, say=say)
    part = Part("errors", bad=found.bad)
    part.figures = {"runs": found.runs.total(), "reported": found.refused, "bad": len(found.bad), **found.runs}
    return part


def single_faults(top: Path, *, long: bool, say: Callable[[str], object]) -> Part:
    """Damage files."""
    found = examine(top, IMAGES_LONG if long else IMAGES, say=say)
    part = Part("single faults", bad=list(found.wrong))
    well = found.well(found.repairable)
    part.figures = {"images": found.images, "accepted or lost": len(found.wrong)}
    part.figures |= {outcome.value: found.count(outcome) for outcome in Outcome}
    part.figures["well, of what others can stand in for"] = f"{well:.2%}"
    for kind, counts in sorted(found.outcomes.items()):
        part.figures[f"  {kind}"] = ", ".join(
            f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]
        )
    if well < 0.99:
        part.bad += [f"only {well:.2%} went on by themselves", *found.halted[:20]]
    return part


def power_cuts(top: Path, *, long: bool, say: Callable[[str], object]) -> Part:
    """Cut the power."""
    part = Part("power cuts")
    why = why_impossible()
    if why is not None:
        part.figures = {"SKIPPED": why}
        part.bad = [f"SKIPPED, and CI must not skip: {why}"] if os.environ.get("CI") == "true" else []
        return part
    single, cluster = CUTS_LONG if long else CUTS
    command = [sys.executable, "-m", "tests.storage.power.cuts", "--output", "json"]
    command += ["--single", str(single), "--cluster", str(cluster)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    results = json.loads(done.stdout)["results"] if done.stdout else []
    for result in results:
        careful = "never synced" not in result["name"]
        part.figures[result["name"]] = (
            f"{result['cuts']} cuts, {result['acknowledged']:,} acknowledged, {result['votes']} votes,"
            f" {len(result['losses'])} {'losses' if careful else 'losses seen, as there must be'}"
        )
        part.bad += result["losses"] if careful else []
    if done.returncode and not part.bad:
        part.bad.append(f"exit status {done.returncode}")
    return part


PARTS = {"crash-states": crash_states, "errors": errors, "single-faults": single_faults, "power-cuts": power_cuts}


def main(arguments: Sequence[str]) -> int:
    """Prove; 0 if nothing is bad."""
    parser = argparse.ArgumentParser(
        prog="storage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--long", action="store_true", help="ten times as much of everything")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="one of them; may be given several times")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    parts = []
    for name in options.only or PARTS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as top:
            part = PARTS[name](Path(top), long=options.long, say=lambda line: print(line, file=sys.stderr, flush=True))
        part.seconds = time.monotonic() - began
        parts.append(part)
    _print(parts)
    return int(any(part.bad for part in parts))


def _print(parts: Sequence[Part]) -> None:
    for part in parts:
        print(f"\n{part.name}, {part.seconds:.0f} s: {'BAD' if part.bad else 'ok'}")
        for name, figure in part.figures.items():
            print(f"  {name:<40} {figure:,}" if isinstance(figure, int) else f"  {name:<40} {figure}")
        for bad in part.bad[:20]:
            print(f"  BAD  {bad}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
