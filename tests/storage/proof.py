"""`python3 dev.py storage`: everything by which the storage is proven, with its figures.

    crash states        every state that a power cut may leave behind each protocol, opened and judged
    errors              every call that changes a file fails once, in every way
    single faults       every kind of byte of every kind of file, damaged in every way
    quorum              the same in a running quorum of three: alone, with the wrong majority, with the right one
    threads             every two calls that may meet in a log, the one stopped at each line of the other
    power cuts          real ones, on ext4; they need root and loop devices
    full disks          real ones, on small file systems, under a quorum; they need root, too

They run beside each other, one per processor, and the last two beside them: these wait for disks. The short form is
for CI, ten minutes on two cores; --long takes hours. --only NAME runs one of them, --count N makes it so many images.
What is drawn at random is drawn anew each time; --seed N draws it again, --of-commit once for a commit's code. Where
no power can be cut that is said, and is an error where CI is set; but with --if-possible the rest counts, for a machine
that truly cannot.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import attrs
import pytest

from tests.simulation.ledger import code_now
from tests.storage.crash.damage_states import prove_damages
from tests.storage.crash.faulty import sweep
from tests.storage.crash.judge import Verdict
from tests.storage.crash.planted import PLANTED
from tests.storage.crash.proof import LONG, Effort, prove
from tests.storage.images.proof import WITHOUT_A_COPY, Examined, examine
from tests.storage.images.quorum_proof import examine_in_quorum
from tests.storage.images.verdict import Outcome
from tests.storage.laid_out import in_memory
from tests.storage.power.disk import why_impossible
from tests.storage.threads.exploring import LONG as THREADS_LONG
from tests.storage.threads.exploring import Effort as OfThreads
from tests.storage.threads.exploring import explore
from tests.storage.threads.interleaver import with_cooperative_locks
from tests.storage.threads.meetings import MEETINGS

SHORT = Effort(most=12, again=2, interruptions=2)
IMAGES, IMAGES_LONG = 10_400, 100_000
IN_QUORUM, IN_QUORUM_LONG = 10_000, 100_000
THREADS = OfThreads(lines=30, at_random=10)
CUTS, CUTS_LONG = (90, 25), (2_000, 500)
"""Of one replica, and of three."""


@attrs.frozen(kw_only=True)
class Wanted:
    """How much of it."""

    long: bool
    seed: int
    count: int | None
    """How many images, if somebody wants another number."""
    if_possible: bool = False
    """What this machine cannot do is no error."""

    def images(self, short: int, long: int) -> int:
        """Return how many images to make."""
        return self.count or (long if self.long else short)


@attrs.define
class Part:
    """One of the proofs, and what came of it."""

    name: str
    tried: str = ""
    """How many of what, for the last table."""
    figures: dict[str, object] = attrs.Factory(dict)
    bad: list[str] = attrs.Factory(list)
    not_run: str | None = None
    """Why, if it was not."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def crash_states(top: Path, wanted: Wanted, say: Callable[[str], object]) -> Part:
    """Enumerate crash states."""
    effort = attrs.evolve(LONG if wanted.long else SHORT, seed=wanted.seed)
    tallies = [*prove(top, effort, say=say), *prove_damages(top, effort, say=say)]
    states = sum(tally.states for tally in tallies)
    part = Part("crash states", f"{states:,} states")
    part.bad = [f"{tally.name}: {bad}" for tally in tallies for bad in tally.bad]
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


def errors(top: Path, wanted: Wanted, say: Callable[[str], object]) -> Part:
    """Let every call fail."""
    found = sweep(top, say=say)
    part = Part("errors", f"{found.runs.total():,} failing calls", bad=found.bad)
    part.figures = {"runs": found.runs.total(), "reported": found.refused, "bad": len(found.bad), **found.runs}
    return part


def single_faults(top: Path, wanted: Wanted, say: Callable[[str], object]) -> Part:
    """Damage files."""
    found = examine(top, wanted.images(IMAGES, IMAGES_LONG), seed=wanted.seed, say=say)
    return _judged("single faults", found, without_a_copy=WITHOUT_A_COPY)


def quorum(top: Path, wanted: Wanted, say: Callable[[str], object]) -> Part:
    """Damage files of one replica of three that run."""
    count = wanted.images(IN_QUORUM, IN_QUORUM_LONG)
    found = examine_in_quorum(top, count, seed=wanted.seed, say=say)
    return _judged("single faults in a quorum", found, without_a_copy=frozenset())


def _judged(name: str, found: Examined, *, without_a_copy: frozenset[str]) -> Part:
    part = Part(name, f"{found.images:,} images", bad=list(found.wrong))
    well = found.well(kind for kind in found.outcomes if kind not in without_a_copy)
    part.figures = {
        "images": found.images,
        "kinds of file, fault and byte": len(found.combinations),
        "accepted or lost": len(found.wrong),
    }
    part.figures |= {outcome.value: found.count(outcome) for outcome in Outcome}
    part.figures["went on by themselves"] = f"{found.well(found.outcomes):.2%}"
    if without_a_copy:
        part.figures["of what others can stand in for"] = f"{well:.2%}"
    for kind, counts in sorted(found.outcomes.items()):
        part.figures[f"  {kind}"] = ", ".join(
            f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]
        )
    if well < 0.99:
        part.bad += [f"only {well:.2%} went on by themselves", *found.halted[:20]]
    return part


def threads(top: Path, wanted: Wanted, say: Callable[[str], object]) -> Part:
    """Let two threads meet."""
    effort = THREADS_LONG if wanted.long else THREADS
    part, count = Part("threads"), 0
    with pytest.MonkeyPatch.context() as monkeypatch:
        with_cooperative_locks(monkeypatch)
        for meeting in MEETINGS:
            try:
                count += explore(meeting, effort, wanted.seed)
            except Exception as error:  # noqa: BLE001 - whatever a thread has raised
                part.bad.append(f"{type(error).__name__}: {error}; {'; '.join(error.__notes__)}")
            say(f"{meeting}: {count} runs, {len(part.bad)} bad")
    part.tried = f"{len(MEETINGS)} meetings, {count:,} runs"
    part.figures = {"meetings": len(MEETINGS), "runs": count, "bad": len(part.bad)}
    return part


def power_cuts(top: Path, wanted: Wanted, say: Callable[[str], object]) -> Part:
    """Cut the power."""
    part = Part("power cuts")
    if _is_impossible(part, wanted):
        return part
    single, cluster = CUTS_LONG if wanted.long else CUTS
    command = [sys.executable, "-m", "tests.storage.power.cuts", "--output", "json"]
    command += ["--single", str(single), "--cluster", str(cluster), "--seed", str(wanted.seed)]
    command += [] if wanted.long else ["--directory", str(top)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    results = json.loads(done.stdout)["results"] if done.stdout else []
    for result in results:
        careful = "never synced" not in result["name"]
        part.figures[result["name"]] = (
            f"{result['cuts']} cuts, {result['acknowledged']:,} acknowledged, {result['votes']} votes,"
            f" {len(result['losses'])} {'losses' if careful else 'losses seen, as there must be'}"
        )
        part.bad += result["losses"] if careful else []
    part.tried = f"{sum(result['cuts'] for result in results if 'never synced' not in result['name']):,} cuts"
    if done.returncode and not part.bad:
        part.bad.append(f"exit status {done.returncode}")
    return part


def full_disks(top: Path, wanted: Wanted, say: Callable[[str], object]) -> Part:
    """Fill disks."""
    part = Part("full disks")
    if _is_impossible(part, wanted):
        return part
    command = [sys.executable, "-m", "tests.storage.power.full", "--output", "json"]
    command += [] if wanted.long else ["--directory", str(top)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    for case in json.loads(done.stdout) if done.stdout else []:
        part.figures[case["name"]] = (
            f"{case['acknowledged']} acknowledged, {case['refused']} refused, {case['elections']} elections"
        )
        part.bad += [f"{case['name']}: {bad}" for bad in case["bad"]]
    part.tried = f"{len(part.figures)} quorums"
    if done.returncode and not part.bad:
        part.bad.append(f"exit status {done.returncode}")
    return part


def _is_impossible(part: Part, wanted: Wanted) -> bool:
    part.not_run = why_impossible()
    if part.not_run and os.environ.get("CI") == "true" and not wanted.if_possible:
        part.bad = [f"not run, and CI must not skip: {part.not_run}"]
    return part.not_run is not None


PARTS = {
    "crash-states": crash_states,
    "errors": errors,
    "single-faults": single_faults,
    "quorum": quorum,
    "threads": threads,
    "power-cuts": power_cuts,
    "full-disks": full_disks,
}
WAITING = ("power-cuts", "full-disks")
"""These wait for disks and for timers, and need no processor of their own."""


def run(name: str, wanted: Wanted) -> Part:
    """Do one part, in a process of its own."""
    logging.disable(logging.CRITICAL)
    began, used = time.monotonic(), _cpu_seconds()
    with in_memory() as top:
        part = PARTS[name](Path(top), wanted, lambda line: print(f"{name}: {line}", file=sys.stderr, flush=True))
    part.seconds, part.cpu_seconds = time.monotonic() - began, _cpu_seconds() - used
    return part


def _cpu_seconds() -> float:
    """Return what this process and its children have used so far."""
    return sum(os.times()[:4])


def main(arguments: Sequence[str]) -> int:
    """Prove; 0 if nothing is bad."""
    parser = argparse.ArgumentParser(
        prog="storage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--long", action="store_true", help="ten times as much of everything")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="one of them; may be given several times")
    parser.add_argument("--seed", type=int, default=None, help="of the random choices (random, and printed)")
    parser.add_argument("--of-commit", action="store_true", help="draw the seed from the code of the commit")
    parser.add_argument("--count", type=int, default=None, help="so many images, of files alone or in a quorum")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time (one per processor)")
    parser.add_argument("--if-possible", action="store_true", help="no error where no power can be cut, but said aloud")
    options = parser.parse_args(arguments)
    drawn = random.Random(code_now()).randrange(10_000) if options.of_commit else random.randrange(10_000)
    seed = drawn if options.seed is None else options.seed
    wanted = Wanted(long=options.long, seed=seed, count=options.count, if_possible=options.if_possible)
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    names = options.only or list(PARTS)
    with ProcessPoolExecutor(options.jobs) as computing, ProcessPoolExecutor(len(WAITING)) as waiting:
        doing = [(waiting if name in WAITING else computing).submit(run, name, wanted) for name in names]
        parts = [done.result() for done in doing]
    _print(parts)
    _print_table(parts)
    print(f"{time.monotonic() - began:.0f} s, seed {seed}: {'BAD' if any(part.bad for part in parts) else 'ok'}")
    if missing := [part for part in parts if part.not_run]:
        print(f"\n=== NOT RUN: {', '.join(part.name for part in missing)}: {missing[0].not_run}")
    return int(any(part.bad for part in parts))


def _print(parts: Sequence[Part]) -> None:
    for part in parts:
        cost = f"{part.seconds:.0f} s, {part.cpu_seconds:.0f} s of a processor"
        print(f"\n{part.name}, {cost}: {'BAD' if part.bad else 'ok'}")
        for name, figure in part.figures.items():
            print(f"  {name:<40} {figure:,}" if isinstance(figure, int) else f"  {name:<40} {figure}")
        for bad in part.bad[:20]:
            print(f"  BAD  {bad}")


def _print_table(parts: Sequence[Part]) -> None:
    print(f"\n{'':<26}{'tried':>22}{'bad':>6}{'s':>7}{'processor s':>13}")
    for part in parts:
        tried = "NOT RUN" if part.not_run else part.tried
        print(f"{part.name:<26}{tried:>22}{len(part.bad):>6}{part.seconds:>7.0f}{part.cpu_seconds:>13.0f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
