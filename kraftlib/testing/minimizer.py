"""Makes a failing run smaller: finds the few strikes of the nemesis that it takes, and leaves the others out.

Delta debugging (Zeller and Hildebrandt, 2002): leave out large parts while the same promise is still broken, then ever
smaller ones, until not one more can go. Strikes do not depend on each other (`nemesis`), so any choice of them is a run
of its own, and one command shows it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.testing.campaign import quiet
from kraftlib.testing.judge import SIMULATE, Program
from kraftlib.testing.nemesis import Strike
from kraftlib.testing.profiles import profile_of
from kraftlib.testing.simulation import Simulation, replay_command
from kraftlib.testing.subject import DEFAULT, load_subject
from kraftlib.testing.violation import InvariantViolation

RUNS_MAX: Final = 400
SECONDS_MAX: Final = 120.0

Fails = Callable[[Sequence[int]], bool]
Progress = Callable[[str], None]


@attrs.frozen(kw_only=True)
class Minimized:
    """A failing run, and the strikes that it takes."""

    violation: InvariantViolation
    """As the small run broke it."""
    strikes: tuple[Strike, ...]
    """All of them are needed, unless `complete` is false."""
    trouble_ms: int | None
    """A shorter time of trouble, if that is enough."""
    began_with: int
    """The number of strikes of the whole run."""
    runs: int
    complete: bool
    """Whether there was time to try everything."""
    replay: str

    def __str__(self) -> str:
        rest = "" if self.complete else " (there was no time to try more)"
        count = f"{len(self.strikes)} of {self.began_with} strikes"
        lines = [
            f"{self.violation.invariant} takes {count}, after {self.runs} runs{rest}",
            *(f"  {strike}" for strike in self.strikes),
            str(self.violation.what),
            f"replay with: {self.replay}",
        ]
        return "\n".join(lines)


class OutOfTimeError(Exception):
    """No run more; the result so far stands."""


def minimize(
    seed: int,
    profile: str,
    *,
    trouble_ms: int | None = None,
    subject: str | None = None,
    runs_max: int = RUNS_MAX,
    seconds_max: float = SECONDS_MAX,
    progress: Progress = lambda text: None,
    program: Program = SIMULATE,
) -> Minimized | None:
    """Make a failing seed smaller; None if it breaks nothing. `subject` is `FILE.py:NAME`.

    Raises: ConfigError, if there is nothing to leave out: the profile makes no trouble.
    """
    if not profile_of(profile).faults:
        raise ConfigError(f"profile {profile} makes no trouble: there is nothing to leave out")
    search = _Search(seed, profile, subject, runs_max, time.monotonic() + seconds_max, progress, program)
    with quiet():
        whole = search.run(None, trouble_ms)
        if whole is None:
            return None
        search.wanted = whole.violation.invariant
        small, complete = whole, True
        try:
            numbers = [strike.number for strike in whole.strikes]
            numbers = smallest(numbers, lambda some: search.run(some, trouble_ms) is not None)
            small = search.run(numbers, trouble_ms) or whole
            small = search.shorten(small, trouble_ms)
        except OutOfTimeError:
            small, complete = search.best or whole, False
    only = [strike.number for strike in small.strikes]
    return Minimized(
        violation=small.violation,
        strikes=tuple(small.strikes),
        trouble_ms=small.trouble_ms,
        began_with=len(whole.strikes),
        runs=search.runs,
        complete=complete,
        replay=replay_command(seed, profile, small.trouble_ms, subject, only=only, program=program),
    )


def smallest(numbers: Sequence[int], fails: Fails) -> list[int]:
    """Return a part of `numbers` that still fails, and none of which can be left out (ddmin)."""
    found, parts = list(numbers), 2
    if not found or fails([]):
        return []
    while len(found) > 1:
        size = -(-len(found) // parts)
        slices = [found[place : place + size] for place in range(0, len(found), size)]
        part = next((part for part in slices if fails(part)), None)
        if part is not None:
            found, parts = part, 2
            continue
        # With two parts, the rests are the parts.
        rests = ([number for number in found if number not in part] for part in (slices if len(slices) > 2 else ()))
        rest = next((rest for rest in rests if fails(rest)), None)
        if rest is not None:
            found, parts = rest, max(parts - 1, 2)
        elif parts >= len(found):
            break
        else:
            parts = min(2 * parts, len(found))
    return found


@attrs.frozen
class _Failure:
    violation: InvariantViolation
    strikes: list[Strike]
    trouble_ms: int | None


class _Search:
    """Runs choices of strikes, and remembers the smallest one that failed."""

    def __init__(
        self,
        seed: int,
        profile: str,
        subject: str | None,
        runs_max: int,
        until_s: float,
        progress: Progress,
        program: Program,
    ) -> None:
        self.runs = 0
        self.wanted: str | None = None
        """Only this counts as a failure: leaving something out may break another promise."""
        self.best: _Failure | None = None
        self._seed = seed
        self._profile = profile_of(profile)
        self._subject = DEFAULT if subject is None else load_subject(subject)
        self._runs_max = runs_max
        self._until_s = until_s
        self._progress = progress
        self._program = program

    def run(self, only: Sequence[int] | None, trouble_ms: int | None) -> _Failure | None:
        """Run some of the strikes. Raises: OutOfTimeError."""
        if self.runs and (self.runs >= self._runs_max or time.monotonic() >= self._until_s):
            raise OutOfTimeError
        self.runs += 1
        simulation = Simulation(
            self._seed,
            self._profile,
            trouble_ms=trouble_ms,
            only=only,
            subject=self._subject,
            program=self._program,
        )
        try:
            simulation.run()
        except InvariantViolation as violation:
            if self.wanted not in (None, violation.invariant):
                return None
            failure = _Failure(violation, list(simulation.nemesis.made), trouble_ms)
            if self.best is None or len(failure.strikes) <= len(self.best.strikes):
                self.best = failure
                self._progress(f"{self.runs} runs: {violation.invariant} takes {len(failure.strikes)} strikes")
            return failure
        return None

    def shorten(self, small: _Failure, trouble_ms: int | None) -> _Failure:
        """End the trouble soon after the last strike, if the promise is broken all the same."""
        last_ms = max((strike.at_ms for strike in small.strikes), default=0)
        numbers = [strike.number for strike in small.strikes]
        for shorter_ms in (last_ms + 1, 2 * last_ms + 100):
            if trouble_ms is None or shorter_ms < trouble_ms:
                failure = self.run(numbers, shorter_ms)
                if failure is not None and len(failure.strikes) <= len(small.strikes):
                    return failure
        return small
