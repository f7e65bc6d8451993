"""Looks for planted bugs: `python -m tests.simulation.hunt [NAME ...]` says which seed found which.

--seeds N     how many seeds each bug gets (2,000)
--first N     the first of them (10,000)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import attrs

from kraftlib.testing.campaign import Finding, run_seed
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import Mutant, planted

SEEDS_MAX = 2_000
FIRST = 10_000


@attrs.frozen
class Catch:
    """A bug that was found."""

    seeds: int
    """How many it took."""
    seed: int
    profile: str
    invariant: str
    what: str


def hunt(mutant: Mutant, *, seeds_max: int = SEEDS_MAX, first: int = FIRST) -> Catch | None:
    """Run seeds with the bug planted until one of them finds it."""
    with planted(mutant):
        for number in range(seeds_max):
            profile = mutant.profiles[number % len(mutant.profiles)]
            seed = first + number
            try:
                result = run_seed(seed, profile=profile)
            except Exception as error:  # noqa: BLE001 - whatever the bug does: it shows
                return Catch(number + 1, seed, profile, type(error).__name__, str(error))
            if isinstance(result, Finding):
                return Catch(number + 1, seed, profile, result.invariant, result.what)
    return None


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
