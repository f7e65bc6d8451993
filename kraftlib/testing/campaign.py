"""Many seeds: run in one process or in several, and summed up.

Each seed is a world of its own, so seeds are spread over processes in any order; each of them yields a report or a
violation.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.testing.judge import SIMULATE, Program
from kraftlib.testing.profiles import profile_of
from kraftlib.testing.simulation import Report, replay_command, simulate
from kraftlib.testing.subject import DEFAULT, load_subject
from kraftlib.testing.violation import InvariantViolation

COLLECT_AT: Final = (50_000, 20, 100)


@attrs.frozen(kw_only=True)
class Finding:
    """A seed that broke a promise, as plain values: it may come from another process."""

    seed: int
    profile: str
    invariant: str
    what: str
    time_ms: int
    replay: str
    trace_hash: str

    @classmethod
    def of(cls, violation: InvariantViolation, seed: int, profile: str) -> Finding:
        """Take a violation's values."""
        return cls(
            seed=seed,
            profile=profile,
            invariant=violation.invariant,
            what=violation.what,
            time_ms=violation.time_ms,
            replay=violation.replay,
            trace_hash=violation.trace_hash,
        )

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.invariant} is violated at {self.time_ms} ms: {self.what}"


@attrs.define
class Summary:
    """The summary of a number of runs."""

    seeds: int = 0
    simulated_ms: int = 0
    events: int = 0
    elections: int = 0
    appends: int = 0
    acknowledged: int = 0
    committed: int = 0
    faults: Counter[str] = attrs.field(factory=Counter)
    findings: list[Finding] = attrs.field(factory=list)
    slowest_leader_ms: int = 0
    stuck: int = 0
    """Runs in which no replica could be elected any more (`liveness.electable`)."""
    pairs: Counter[str] = attrs.field(factory=Counter)
    """Counts of each situation with each event and answer, in the seeds whose program has them counted."""
    seconds: float = 0.0
    """Of this machine."""

    def add(self, result: Report | Finding) -> None:
        """Count one run."""
        self.seeds += 1
        if isinstance(result, Finding):
            self.findings.append(result)
            self.simulated_ms += result.time_ms
            return
        self.simulated_ms += result.simulated_ms
        self.events += result.events
        self.elections += result.elections
        self.appends += result.appends
        self.acknowledged += result.acknowledged
        self.committed += result.committed
        self.faults.update(result.faults)
        self.pairs.update(result.pairs)
        self.stuck += result.leader_after_ms < 0
        self.slowest_leader_ms = max(self.slowest_leader_ms, result.leader_after_ms)

    @property
    def events_per_second(self) -> float:
        """Simulated events per second of this machine."""
        return self.events / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "seeds": self.seeds,
            "violations": len(self.findings),
            "simulated_hours": round(self.simulated_ms / 3_600_000, 4),
            "seconds": round(self.seconds, 2),
            "events": self.events,
            "events_per_second": round(self.events_per_second),
            "times_real_time": round(self.simulated_ms / 1_000 / self.seconds, 1) if self.seconds else None,
            "elections": self.elections,
            "appends": self.appends,
            "acknowledged": self.acknowledged,
            "committed": self.committed,
            "slowest_leader_ms": self.slowest_leader_ms,
            "stuck": self.stuck,
            "faults_injected": sum(self.faults.values()),
            "kinds_of_faults": len(+self.faults),
            "faults": dict(sorted(self.faults.items())),
            "pairs_reached": len(self.pairs),
            "pairs": dict(sorted(self.pairs.items(), key=lambda row: (row[1], row[0]))),
            "findings": [attrs.asdict(finding) for finding in self.findings],
        }


def run_seed(
    seed: int,
    *,
    profile: str,
    trouble_ms: int | None = None,
    subject: str | None = None,
    program: Program = SIMULATE,
) -> Report | Finding:
    """Run one seed; a broken promise comes back as a value. `subject` is `FILE.py:NAME`; `program` may add judges.

    So does what breaks the run itself, as CRASH: one seed among thousands must not take the others with it.
    Raises: ConfigError for a profile or a subject that does not exist.
    """
    profile_of(profile)
    simulated = DEFAULT if subject is None else load_subject(subject)
    replay = replay_command(seed, profile, trouble_ms, subject, program=program)
    with quiet(), collecting_rarely():
        try:
            return simulate(seed, profile, trouble_ms=trouble_ms, subject=simulated, replay=replay, program=program)
        except InvariantViolation as violation:
            return Finding.of(violation, seed, profile)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its seed
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
            return Finding(
                seed=seed, profile=profile, invariant="CRASH", what=what, time_ms=0, replay=replay, trace_hash=""
            )


def run_seeds(
    seeds: Iterable[int],
    *,
    profile: str,
    jobs: int = 1,
    trouble_ms: int | None = None,
    subject: str | None = None,
) -> Iterator[Report | Finding]:
    """Run many seeds, `jobs` at a time, and yield each result as it comes."""
    yield from spread(partial(run_seed, profile=profile, trouble_ms=trouble_ms, subject=subject), seeds, jobs=jobs)


def spread(
    one: Callable[[int], Report | Finding], seeds: Iterable[int], *, jobs: int = 1
) -> Iterator[Report | Finding]:
    """Call `one`, which other processes must be able to import, with each seed, `jobs` at a time."""
    if jobs <= 1:
        yield from map(one, seeds)
        return
    # Spawned, so that the seeds of a process never see what this process has imported or patched.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(one, seeds, chunksize=4)


def summarize(results: Iterable[Report | Finding], *, clock: Any = time.perf_counter) -> Summary:
    """Sum results up as they come."""
    summary, began = Summary(), clock()
    for result in results:
        summary.add(result)
    summary.seconds = clock() - began
    return summary


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Let the garbage collector look less often: a run keeps most of its objects to its end, so looking through them is
    in vain.

    It makes a run an eighth faster.
    """
    before = gc.get_threshold()
    gc.set_threshold(*COLLECT_AT)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def quiet() -> Iterator[None]:
    """Let the replicas of a simulation log nothing: they do so thousands of times a second, and all of it is staged."""
    loggers: Sequence[logging.Logger] = [logging.getLogger("kraftlib")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
