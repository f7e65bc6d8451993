"""What CI runs of the simulator: `python3 dev.py campaign`.

Other seeds in each run, drawn from the time (or from the commit) and printed; figures that must be reached;
and some of the planted bugs, each of which must be found. A faster machine runs no other seeds than a slower one. Exit
status 1 if a promise is broken, a figure is missed or a bug gets away. It ends in time, whatever hangs: then it says
which figures it has not come to.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import attrs

from kraftlib.testing.campaign import Finding, Summary
from kraftlib.testing.simulation import Report
from tests.simulation.hunt import hunt
from tests.simulation.ledger import Row, add_to_page, code_now, commit_now, row_of
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import Mutant
from tools.core_fuzz.coverage import shares
from tools.core_fuzz.themes import THEMES
from tools.simulate.seeds import run_seed

SHARES: Final[Mapping[str, float]] = {
    "swarm": 0.50, "membership": 0.20, "crashes": 0.10, "network": 0.10, "disks": 0.05, "clocks": 0.05,
}  # fmt: skip
"""How many of the seeds each profile gets. The hours come from `hours` and `quiet`, whose runs are long."""

LONG: Final = ("hours", "hours", "quiet")

CORE_ROUND: Final = 150
"""After so many seeds it is looked at what they have reached, and the next ones are drawn accordingly."""
RAREST_SHOWN: Final = 8

MUTANTS_A_RUN: Final = 4
MUTANTS_SHARE: Final = 0.15
"""How much of the time is theirs."""
QUICK_MAX: Final = 150
"""A bug of the rotating part gets so many seeds; the long form, `dev.py mutants`, gives 2,000."""


@attrs.frozen(kw_only=True)
class Wanted:
    """The figures to reach."""

    seeds: int = 2_000
    """Of the full simulator."""
    core_seeds: int = 1_500
    """Of the core alone."""
    hours: float = 20.0
    faults: int = 60_000
    kinds: int = 25
    elections: int = 1_000
    acknowledged: int = 20_000
    """Records. A cluster that elects nobody and takes nothing breaks no promise."""

    def times(self, share: float) -> Wanted:
        """Return this in proportion; kinds are kinds."""
        return attrs.evolve(
            self,
            seeds=round(self.seeds * share),
            core_seeds=round(self.core_seeds * share),
            hours=self.hours * share,
            faults=round(self.faults * share),
            elections=round(self.elections * share),
            acknowledged=round(self.acknowledged * share),
        )

    def missed_of_core(self, total: Summary) -> list[str]:
        """Return what the core alone did not reach."""
        missed = [f"{len(total.findings)} violations of the core alone"] if total.findings else []
        if total.seeds < self.core_seeds:
            missed.append(f"{total.seeds} of {self.core_seeds} seeds of the core alone")
        return missed

    def missed(self, total: Summary) -> list[str]:
        """Return what the full simulator did not reach."""
        hours, faults, kinds = total.simulated_ms / 3_600_000, sum(total.faults.values()), len(+total.faults)
        missed = [f"{len(total.findings)} violations"] if total.findings else []
        missed += [f"{total.seeds} of {self.seeds} seeds"] if total.seeds < self.seeds else []
        missed += [f"{hours:.1f} of {self.hours} simulated hours"] if hours < self.hours else []
        missed += [f"{faults} of {self.faults} faults"] if faults < self.faults else []
        missed += [f"{kinds} of {self.kinds} kinds of faults"] if kinds < self.kinds else []
        elections, acknowledged = total.elections, total.acknowledged
        missed += [f"{elections} of {self.elections} elections"] if elections < self.elections else []
        missed += (
            [f"{acknowledged} of {self.acknowledged} acknowledged records"] if acknowledged < self.acknowledged else []
        )
        return missed


Task = tuple[str, int]
"""A profile and a seed."""


class Results(Protocol):
    """What `Pool.imap_unordered` returns, as far as it is needed."""

    def next(self, timeout: float) -> Any:
        """Return the next result. Raises: StopIteration; multiprocessing.TimeoutError, if it takes longer."""
        ...


def tasks(wanted: Wanted, first: int) -> list[Task]:
    """Return the seeds of the ordinary profiles, mixed, so that whatever is cut short has some of each."""
    each = {profile: round(share * wanted.seeds) + 1 for profile, share in SHARES.items()}
    ranked = [
        ((number + 0.5) / count, profile, first + number)
        for profile, count in each.items()
        for number in range(count)
    ]  # fmt: skip
    return [(profile, seed) for _, profile, seed in sorted(ranked)]


def run_task(task: Task) -> tuple[Task, Report | Finding]:
    """Run one seed, in a process of the pool."""
    return task, run_seed(task[1], profile=task[0])


def long_tasks(first: int) -> Iterator[Task]:
    """Yield long runs without end."""
    number = 0
    while True:
        yield LONG[number % len(LONG)], first + number
        number += 1


def caught(mutant: Mutant, first: int) -> tuple[str, str | None]:
    """Look for a planted bug; return its name and what found it."""
    found = hunt(mutant, seeds_max=QUICK_MAX, first=first)
    return mutant.name, None if found is None else f"{found.invariant} after {found.seeds} seeds"


def rotating(first: int) -> list[Mutant]:
    """Return the bugs of this run; every one comes round."""
    biting = [mutant for mutant in MUTANTS if not mutant.equivalent and not mutant.slow]
    place = first // 100_000 * MUTANTS_A_RUN
    return [biting[(place + number) % len(biting)] for number in range(MUTANTS_A_RUN)]


def in_time(results: Results, until_s: float) -> Iterator[Any]:
    """Yield results as they come, until there are no more, or until then. What still runs ends with its pool."""
    while True:
        try:
            yield results.next(timeout=max(0.0, until_s - time.monotonic()))
        except (StopIteration, multiprocessing.TimeoutError):
            return


def next_round(names: Iterable[str], sums: Mapping[str, Summary], first: int, count: int) -> list[Task]:
    """Return the next seeds: the more of a profile the rarer what it reaches. They go on by number."""
    known = {name: sums.get(name, Summary()) for name in names}
    drawn = shares(
        {name: part.pairs for name, part in known.items()}, {name: part.seeds for name, part in known.items()}
    ) if sums else dict.fromkeys(known, 1 / len(known))  # fmt: skip
    return [
        (name, first + part.seeds + number)
        for name, part in known.items()
        for number in range(round(drawn[name] * count) or 1)
    ]


def core_round(sums: Mapping[str, Summary], first: int, count: int) -> list[Task]:
    """Return the next seeds of the core fuzzer."""
    return next_round(THEMES, sums, first, count)


def fuzz_the_core(wanted: Wanted, first: int, until_s: float, jobs: int) -> dict[str, Summary]:
    """Run the core fuzzer. Whole rounds only are looked at, so a second run draws the same seeds."""
    sums: dict[str, Summary] = {}
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        while sum(part.seeds for part in sums.values()) < wanted.core_seeds and time.monotonic() < until_s:
            chosen = core_round(sums, first, min(CORE_ROUND, wanted.core_seeds))
            for (theme, _), result in in_time(pool.imap_unordered(run_task, chosen), until_s):
                sums.setdefault(theme, Summary()).add(result)
                if isinstance(result, Finding):
                    print(f"{result}\n  replay with: {result.replay}", flush=True)
    return sums


def simulate_all(wanted: Wanted, first: int, until_s: float, jobs: int) -> dict[str, Summary]:
    """Run the seeds, then long ones until the hours are reached; tell of it on stderr."""
    sums: dict[str, Summary] = {}
    total = Summary()
    latest = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:

        def take(results: Results) -> None:
            nonlocal latest
            for (profile, _), result in in_time(results, until_s):
                sums.setdefault(profile, Summary()).add(result)
                total.add(result)
                if isinstance(result, Finding):
                    print(f"{result}\n  replay with: {result.replay}", flush=True)
                if time.monotonic() - latest > 10:
                    latest = time.monotonic()
                    print(f"{total.seeds} seeds, {total.simulated_ms / 3_600_000:.1f} h", file=sys.stderr, flush=True)

        # Half of the seeds in the usual shares; the rest goes where rare pairs were reached.
        take(pool.imap_unordered(run_task, tasks(attrs.evolve(wanted, seeds=wanted.seeds // 2), first)))
        while total.seeds < wanted.seeds and time.monotonic() < until_s:
            take(pool.imap_unordered(run_task, next_round(SHARES, sums, first, CORE_ROUND)))
        endless = long_tasks(first)
        while total.simulated_ms < wanted.hours * 3_600_000 and time.monotonic() < until_s:
            take(pool.imap_unordered(run_task, [next(endless) for _ in range(2 * jobs)]))
    return sums


def summed(sums: Mapping[str, Summary]) -> Summary:
    """Add summaries up."""
    total = Summary()
    for part in sums.values():
        for field in ("seeds", "simulated_ms", "events", "elections", "appends", "acknowledged", "committed", "stuck"):
            setattr(total, field, getattr(total, field) + getattr(part, field))
        total.faults.update(part.faults)
        total.pairs.update(part.pairs)
        total.findings += part.findings
    return total


def main(arguments: Sequence[str]) -> int:
    """Run a campaign and the rotating part of the mutants."""
    parser = argparse.ArgumentParser(prog="dev.py campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0, help="all of it ends by then (15)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--first", type=int, help="first seed of each profile (from the time)")
    parser.add_argument(
        "--of-commit",
        action="store_true",
        help="draw the seeds from the code of the commit: other ones for each, and a second run of one is the same run",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=Wanted().seeds,
        help=f"how many of the full simulator ({Wanted().seeds:,}); other figures in proportion",
    )
    parser.add_argument("--no-mutants", action="store_true")
    parser.add_argument("--ledger", action="store_true", help="add what was run to the ledger in the documentation")
    options = parser.parse_args(arguments)
    wanted = Wanted().times(options.seeds / Wanted().seeds)
    commit, began = commit_now(), time.monotonic()
    first = options.first if options.first is not None else first_seed(code_now() if options.of_commit else "")
    again = f"dev.py campaign --first {first} --seeds {options.seeds}"
    print(f"campaign from seed {first} on, commit {commit}; the same again: {again}", flush=True)

    until_s = began + 60 * options.minutes
    reserved_s = 0 if options.no_mutants else 60 * options.minutes * MUTANTS_SHARE
    core = fuzz_the_core(wanted, first, until_s - reserved_s, options.jobs)
    report_core(core)
    began_others = time.monotonic()
    sums = simulate_all(wanted, first, until_s - reserved_s, options.jobs)
    total = summed(sums)
    total.seconds = time.monotonic() - began_others
    report(total)
    missed = wanted.missed(total) + wanted.missed_of_core(summed(core))
    if not options.no_mutants:
        missed += mutants_that_got_away(first, until_s, options.jobs)
    if options.ledger:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        rows: list[Row] = [
            row_of(part, date=date, commit=commit, profile=profile, first_seed=first) for profile, part in sums.items()
        ]
        add_to_page(rows)
    late = f" in {options.minutes:g} minutes" if time.monotonic() >= until_s - reserved_s else ""
    print(f"MISSED{late}: {'; '.join(missed)}" if missed else "every figure is reached", flush=True)
    return 1 if missed else 0


def first_seed(code: str) -> int:
    """Return where the seeds of a hash begin, far from those of all others; without one, those of this second.

    What is red in CI is so again for whoever tries it, and what is green stays so.
    """
    known = re.match("[0-9a-f]{9}", code)
    return (int(known[0], 16) if known else int(time.time())) * 100_000


def mutants_that_got_away(first: int, until_s: float, jobs: int) -> list[str]:
    """Plant the bugs of this run; return those that nothing found, and those for which there was no time."""
    chosen = rotating(first)
    found: dict[str, str | None] = {}
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for name, what in in_time(pool.imap_unordered(partial(caught, first=first), chosen), until_s):
            found[name] = what
            print(f"planted {name}: {what or 'GOT AWAY'}", flush=True)
    late = [f"no time to find {mutant.name}" for mutant in chosen if mutant.name not in found]
    return [f"{name} got away" for name, what in found.items() if what is None] + late


def report_core(sums: Mapping[str, Summary]) -> None:
    """Print what the core fuzzer has run and reached, and which pairs least."""
    total = summed(sums)
    drawn = ", ".join(f"{theme} {part.seeds}" for theme, part in sums.items())
    print(
        f"the core alone: {total.seeds} seeds ({drawn}), {total.events} events, {total.elections} elections, "
        f"{len(total.findings)} violations\n"
        f"{len(total.pairs)} pairs of situation, event and answer; reached least:",
        flush=True,
    )
    for name, count in sorted(total.pairs.items(), key=lambda row: (row[1], row[0]))[:RAREST_SHOWN]:
        print(f"  {count:>6}  {name}", flush=True)


def report(total: Summary) -> None:
    """Print the figures."""
    hours = total.simulated_ms / 3_600_000
    lines = [
        f"{total.seeds} seeds, {hours:.1f} simulated cluster-hours, {sum(total.faults.values())} faults of "
        f"{len(+total.faults)} kinds, {len(total.findings)} violations, {total.stuck} stuck",
        f"{total.elections} elections, {total.acknowledged} of {total.appends} appends acknowledged",
        f"{total.events} events in {total.seconds:.0f} s: {total.events_per_second:,.0f} a second, "
        f"{hours * 3600 / total.seconds:.0f} x real time",
    ]
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
