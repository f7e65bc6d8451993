"""`kraftlib simulate`: whole quorums on simulated time, with everything going wrong, and every promise checked."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.testing.campaign import Finding, Summary, quiet, run_seed, spread
from kraftlib.testing.judge import SIMULATE, Program
from kraftlib.testing.minimizer import minimize
from kraftlib.testing.profiles import PROFILES, profile_of
from kraftlib.testing.simulation import Report, Simulation, replay_command
from kraftlib.testing.subject import DEFAULT, load_subject
from kraftlib.testing.timeline_page import TimelinePage
from kraftlib.testing.trace import Entry
from kraftlib.testing.violation import InvariantViolation

DEFAULT_SEEDS: Final = range(100)
PROGRESS_SECONDS: Final = 2.0
LATEST_SHOWN: Final = 40
"""Number of steps before a violation that are shown when one seed is run."""

RAREST_SHOWN: Final = 10

EXAMPLES: Final = """
examples:
  kraftlib simulate --seeds 0:1000 --jobs 2     a thousand quorums
  kraftlib simulate --seed 362 --trace          one of them again, step by step
  kraftlib simulate --seed 362 --timeline run.html    the same as a page for a browser
  kraftlib simulate --seed 362 --minimize       the few strikes that break the promise
  kraftlib simulate --seeds 0:200 --profile crashes --output json
  kraftlib simulate --seeds 0:200 --subject bank.py:subject    your own state machine

profiles:
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options, description and examples."""
    parser.description = (
        "Simulate quorums: the real core, executor and applier on simulated time, network and disks. Each seed draws "
        "what goes wrong; every promise of the protocol is checked at every step. Exit status 1 if one is broken, with "
        "the command that shows it again."
    )
    parser.epilog = EXAMPLES + listed((profile.name, profile.what) for profile in PROFILES.values())
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, metavar="N", help="run one seed, and print more about it")
    seeds.add_argument("--seeds", type=seed_range, metavar="A:B", help="run the seeds from A up to B, B excluded")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (1)")
    parser.add_argument("--profile", default="swarm", metavar="NAME", help="the faults to draw from (swarm)")
    parser.add_argument(
        "--until-ms", type=int, metavar="T", help="simulated ms of faults, instead of the time that the seed draws"
    )
    parser.add_argument(
        "--subject", metavar="FILE.py:NAME", help="simulate a state machine of your own: a kraftlib.testing Subject"
    )
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="json: one object a seed, then a sum"
    )
    parser.add_argument("--trace", action="store_true", help="with --seed: print every step")
    parser.add_argument(
        "--timeline", type=Path, metavar="FILE.html", help="with --seed: draw the run as a page for a browser"
    )
    parser.add_argument("--only", type=strike_numbers, metavar="N,N", help="with --seed: these strikes only, or 'none'")
    parser.add_argument(
        "--minimize", action="store_true", help="with --seed: find the few strikes that break the promise"
    )


def listed(profiles: Iterable[tuple[str, str]]) -> str:
    """Return names of profiles, each with its line for people, as the help shows them."""
    return "\n".join(f"  {name:<14} {what}" for name, what in profiles)


def seed_range(text: str) -> range:
    """Read `A:B`."""
    first, _, last = text.partition(":")
    if not first.isdecimal() or not last.isdecimal() or int(first) >= int(last):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds: expected A:B with A below B")
    return range(int(first), int(last))


def strike_numbers(text: str) -> frozenset[int]:
    """Read `3,17`, or `none`."""
    words = [] if text == "none" else text.split(",")
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of strikes: expected numbers like 3,17, or none")
    return frozenset(map(int, words))


def run(options: argparse.Namespace, program: Program = SIMULATE) -> int:
    """Run one seed or many; return 1 if a promise was broken. `program` may add judges."""
    profile_of(options.profile)
    check(options)
    if options.seed is not None:
        return run_minimized(options, program) if options.minimize else run_one(options, program)
    one = partial(
        run_seed, profile=options.profile, trouble_ms=options.until_ms, subject=options.subject, program=program
    )
    return report(spread(one, options.seeds or DEFAULT_SEEDS, jobs=options.jobs), options)


def check(options: argparse.Namespace) -> None:
    """Refuse options that do not fit together. Raises: ConfigError."""
    for name in ("only", "timeline", "minimize"):
        if options.seed is None and getattr(options, name) not in (None, False):
            raise ConfigError(f"--{name} is for one run: choose it with --seed")
    if options.jobs < 1:
        raise ConfigError(f"--jobs {options.jobs}: at least one process is needed")
    if options.until_ms is not None and options.until_ms < 0:
        raise ConfigError(f"--until-ms {options.until_ms}: it must be at least 0")


def report(results: Iterable[Report | Finding], options: argparse.Namespace) -> int:
    """Print the results of many seeds and their sum; return 1 if a promise was broken."""
    summary = Summary()
    began = time.perf_counter()
    for result in shown(results, summary, as_json=options.output == "json"):
        summary.add(result)
    summary.seconds = time.perf_counter() - began
    if options.output == "json":
        print(json.dumps({"summary": summary.to_dict()}))
    else:
        print_summary(summary)
    return 1 if summary.findings else 0


def shown(results: Iterable[Report | Finding], summary: Summary, *, as_json: bool) -> Iterator[Report | Finding]:
    """Yield results, telling of them as they come: lines of JSON on stdout, or progress and violations on stderr."""
    latest = time.monotonic()
    for result in results:
        yield result
        if as_json:
            print(json.dumps(plain(result)), flush=True)
        elif isinstance(result, Finding):
            print(f"{result}\n  replay with: {result.replay}", file=sys.stderr, flush=True)
        if time.monotonic() - latest >= PROGRESS_SECONDS:
            latest = time.monotonic()
            print(f"{summary.seeds} seeds, {len(summary.findings)} violations", file=sys.stderr, flush=True)


def plain(result: Report | Finding) -> dict[str, object]:
    """Return one result as JSON shows it."""
    if isinstance(result, Report):
        return {"ok": True, **result.to_dict()}
    return {
        "ok": False, "seed": result.seed, "profile": result.profile, "invariant": result.invariant,
        "what": result.what, "simulated_ms": result.time_ms, "replay": result.replay, "trace_hash": result.trace_hash,
    }  # fmt: skip


def run_one(options: argparse.Namespace, program: Program) -> int:
    """Run one seed: with its steps if wanted, and with the last of them if it breaks something."""
    as_json = options.output == "json"
    replay = replay_command(
        options.seed, options.profile, options.until_ms, options.subject, only=options.only, program=program
    )
    page = TimelinePage(replay) if options.timeline is not None else None

    def show(entry: Entry) -> None:
        if page is not None:
            page.add(entry)
        if options.trace:
            print(json.dumps(step_of(entry)) if as_json else entry)

    simulation = Simulation(
        options.seed,
        profile_of(options.profile),
        trouble_ms=options.until_ms,
        only=options.only,
        subject=DEFAULT if options.subject is None else load_subject(options.subject),
        replay=replay,
        program=program,
        on_entry=show if options.trace or page is not None else None,
    )
    result, violation = None, None
    with quiet():
        try:
            result = simulation.run()
        except InvariantViolation as broken:
            violation = broken
    if page is not None:
        outcome = str(violation) if result is None else describe(result)
        write_page(options.timeline, page.render(outcome=outcome, violation=violation))
    if violation is None and result is not None:
        print(json.dumps(plain(result)) if as_json else describe(result))
        return 0
    if violation is not None and as_json:
        print(json.dumps(plain(Finding.of(violation, options.seed, options.profile))))
    elif not options.trace:
        for entry in list(simulation.world.trace.latest())[-LATEST_SHOWN:]:
            print(entry)
    print(violation, file=sys.stderr)
    return 1


def write_page(path: Path, page: str) -> None:
    """Write a timeline. Raises: ConfigError, if it cannot be written there."""
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
    print(f"the run as a picture: {path}", file=sys.stderr)


def run_minimized(options: argparse.Namespace, program: Program) -> int:
    """Make a failing seed smaller, and say what is left; return 1, as the seed does."""
    small = minimize(
        options.seed,
        options.profile,
        trouble_ms=options.until_ms,
        subject=options.subject,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
        program=program,
    )
    if small is None:
        print(f"seed {options.seed} breaks no promise: there is nothing to minimize")
        return 0
    if options.output == "json":
        finding = Finding.of(small.violation, options.seed, options.profile)
        strikes = [attrs.asdict(strike) for strike in small.strikes]
        print(json.dumps({**plain(finding), "replay": small.replay, "strikes": strikes, "runs": small.runs}))
    else:
        print(small)
    return 1


def step_of(entry: Entry) -> dict[str, object]:
    """Return one step of a trace as JSON shows it."""
    return {
        "time_us": entry.time_us, "step": entry.step.name.lower(), "node": entry.node, "a": entry.a, "b": entry.b,
        **({"note": entry.note} if entry.note else {}),
    }  # fmt: skip


def describe(report: Report) -> str:
    """Return what a run was, for people."""
    faults = ", ".join(f"{count} x {name}" for name, count in sorted(report.faults.items()) if count)
    return (
        f"seed {report.seed}, profile {report.profile}: {report.voters} voters, {report.observers} observers, "
        f"{report.simulated_ms / 1000:.1f} simulated seconds, {report.events} events\n"
        f"{report.elections} elections, {report.committed} records committed, {report.acknowledged} of "
        f"{report.appends} appends acknowledged\n"
        f"trouble: {faults or 'none'}\n"
        f"trace hash {report.trace_hash}; every promise was kept"
    )


def print_summary(summary: Summary) -> None:
    """Print the sum of many runs."""
    hours = summary.simulated_ms / 3_600_000
    ratio = summary.simulated_ms / 1_000 / summary.seconds
    print(
        f"{summary.seeds} seeds, {len(summary.findings)} violations; {hours:.2f} simulated hours in "
        f"{summary.seconds:.1f} s ({ratio:.0f} x real time), {summary.events} events "
        f"({summary.events_per_second:,.0f} a second)"
    )
    print(
        f"{summary.elections} elections, {summary.committed} records committed, {summary.acknowledged} of "
        f"{summary.appends} appends acknowledged, slowest leader {summary.slowest_leader_ms} ms after the trouble"
    )
    if summary.pairs:
        print_pairs(summary)
    print(f"{sum(summary.faults.values())} faults of {len(+summary.faults)} kinds:")
    for name, count in summary.faults.most_common():
        print(f"  {count:>8}  {name}")


def print_pairs(summary: Summary) -> None:
    """Print how much of the core was reached, and what least."""
    print(f"{len(summary.pairs)} pairs of situation and event; reached least:")
    for name, count in sorted(summary.pairs.items(), key=lambda row: (row[1], row[0]))[:RAREST_SHOWN]:
        print(f"  {count:>8}  {name}")
