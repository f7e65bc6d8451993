"""Looks for planted bugs: `python -m tests.simulation.hunt [NAME ...]` says which seed found which.

--seeds N     how many seeds each bug gets (2,000)
--first N     the first of them (10,000)
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from kraftlib.testing.campaign import Finding
from kraftlib.testing.profiles import profile_of
from kraftlib.testing.simulation import Simulation
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import Mutant, planted
from tools.core_fuzz.themes import THEMES
from tools.simulate.seeds import run_seed

SEEDS_MAX = 2_000
FIRST = 10_000

AT_ONCE = 50
"""Of so many seeds the cheapest are run first: most bugs show in every second seed, and some take a hundred times as
long as others."""

SEED_CPU_SECONDS = 30.0
"""What a seed gets of a processor: a hundred times what it needs. A bug may make it run for ever, and shows so, too."""


@attrs.frozen
class Catch:
    """A bug that was found."""

    seeds: int
    """How many it took."""
    seed: int
    profile: str
    invariant: str
    what: str


class EndlessError(Exception):
    """A seed did not come to its end."""


@contextmanager
def coming_to_an_end() -> Iterator[None]:
    """Let something take so much of a processor, and no more. Raises: EndlessError."""

    def too_long(*_: Any) -> None:
        raise EndlessError(f"no end after {SEED_CPU_SECONDS:.0f} s of a processor")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, SEED_CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def work(profile: str, seed: int) -> float:
    """Estimate what a run costs, in any unit: what is appended in it, by how many it is taken."""
    if profile in THEMES:
        return 0.0  # a tenth of a second each
    simulation = Simulation(seed, profile_of(profile))
    return simulation.trouble_ms * simulation.world.workload.rate * len(simulation.world.nodes)


def runs(profiles: Sequence[str], *, first: int, seeds_max: int) -> Iterator[tuple[str, int]]:
    """Yield profiles and seeds, the profiles in turn, of each `AT_ONCE` the cheapest first."""
    numbers = iter(range(seeds_max))
    while batch := list(itertools.islice(numbers, AT_ONCE)):
        yield from sorted(
            ((profiles[number % len(profiles)], first + number) for number in batch), key=lambda run: work(*run)
        )


def hunt(mutant: Mutant, *, seeds_max: int = SEEDS_MAX, first: int = FIRST) -> Catch | None:
    """Run seeds with the bug planted until one of them finds what it does not find without the bug."""
    for number, (profile, seed) in enumerate(runs(mutant.profiles, first=first, seeds_max=seeds_max), start=1):
        with planted(mutant):
            found = _run(profile, seed)
        if found is None:
            continue
        if (without := _run(profile, seed)) is None:
            return Catch(number, seed, profile, *found)
        print(f"not counted: seed {seed} of {profile} finds {without[0]} without the bug: {without[1]}", flush=True)
    return None


def _run(profile: str, seed: int) -> tuple[str, str] | None:
    """Return what a seed finds, and what it says of it."""
    try:
        with coming_to_an_end():
            result = run_seed(seed, profile=profile)
    except Exception as error:  # noqa: BLE001 - whatever a bug does: it shows
        return type(error).__name__, str(error)
    return (result.invariant, result.what) if isinstance(result, Finding) else None


def main(arguments: Sequence[str]) -> int:
    """Hunt all, or those that are named; return 1 if one got away."""
    parser = argparse.ArgumentParser(prog="hunt", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--first", type=int, default=FIRST)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if (m.name in options.names if options.names else not m.equivalent)]
    got_away = 0
    for mutant in chosen:
        began = time.perf_counter()
        found = hunt(mutant, seeds_max=options.seeds, first=options.first)
        seconds = time.perf_counter() - began
        if found is None:
            got_away += 1
            print(f"GOT AWAY  {mutant.name:<44} {seconds:7.1f} s", flush=True)
        else:
            print(
                f"{found.seeds:>5} seeds  {mutant.name:<44} {seconds:7.1f} s  {found.invariant:<4} seed {found.seed}: "
                f"{found.what[:90]}",
                flush=True,
            )
    print(f"{len(chosen) - got_away} of {len(chosen)} planted bugs found")
    return 1 if got_away else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
