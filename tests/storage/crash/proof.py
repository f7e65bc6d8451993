"""Crash states of every protocol, made and judged: `prove` is what the tests run, short, and `dev.py storage`, long."""

from __future__ import annotations

import errno
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from tests.storage.crash.judge import Judge, Verdict
from tests.storage.crash.ledger import Ledger
from tests.storage.crash.protocols import NOTED, PROTOCOLS, Story, interrupted, recovered, traced
from tools.storage_proof.crash_states import CrashState, CrashStates
from tools.storage_proof.file_trace import Fault, FileTrace

SYNCS = ("fsync", "fdatasync")
CRASH = "crash"
RECOVERY, KILL, FAILED_SYNC = "crash in recovery", "killed, then crash", "failed sync, then crash"
GO_ON_EVERY = 4
"""So seldom a state is appended to and opened again."""


@attrs.define
class Tally:
    """What came of the states of one kind."""

    name: str
    verdicts: Counter[Verdict] = attrs.Factory(Counter)
    bad: list[str] = attrs.Factory(list)
    """What was wrong with the first ones."""

    @property
    def states(self) -> int:
        """How many there were."""
        return self.verdicts.total()


@attrs.frozen(kw_only=True)
class Effort:
    """How much is tried."""

    most: int = 60
    """Combinations per place at which power may go."""
    again: int = 6
    """Crash states per protocol whose recovery is crashed in turn."""
    interruptions: int = 6
    """Places per protocol at which the process is killed, or a sync fails."""
    seed: int = 0
    kinds: Sequence[str] = (CRASH, RECOVERY, KILL, FAILED_SYNC)
    """What happens before power goes."""
    failing_after: str = ""
    """The call right before each sync that fails, such as `ftruncate`; any, if it is empty."""
    until_bad: bool = False
    """Stop at the first bad state."""


LONG = Effort(most=1_000, again=40, interruptions=60)


def prove(
    top: Path, effort: Effort = Effort(), *, only: Sequence[str] = (), say: Callable[[str], object] = lambda line: None
) -> list[Tally]:
    """Make and judge crash states in a directory; it should be one in memory."""
    tallies = []
    for name, story in (PROTOCOLS | NOTED).items():
        if only and name not in only:
            continue
        trace = traced(story, _fresh(top))
        if CRASH in effort.kinds:
            first = _judged(name, top, [trace], effort)
            tallies.append(first)
            say(f"{name}: {first.states} states, {first.verdicts[Verdict.BAD]} bad")
        for kind, traces in (
            (RECOVERY, _recoveries(story, trace, top, effort)),
            (KILL, _kills(story, top, effort)),
            (FAILED_SYNC, _failed_syncs(story, top, effort)),
        ):
            if kind in effort.kinds:
                less = attrs.evolve(effort, most=max(4, effort.most // 6))
                tallies.append(_judged(f"{name}: {kind}", top, traces, less))
    return tallies


def _judged(name: str, top: Path, traces: Iterator[FileTrace] | Sequence[FileTrace], effort: Effort) -> Tally:
    tally = Tally(name)
    for trace in traces:
        with Judge(top / "judged") as judge:
            states = CrashStates(trace.operations, trace.initial, most=effort.most, seed=effort.seed)
            for number, state in enumerate(states):
                verdict = judge.judge(state.image, Ledger.of(state.marks), go_on=number % GO_ON_EVERY == 0)
                tally.verdicts[verdict.verdict] += 1
                if verdict.verdict is Verdict.BAD and len(tally.bad) < 10:
                    tally.bad.append(_described(state, verdict.why))
                    if effort.until_bad:
                        return tally
    return tally


def _described(state: CrashState, why: str) -> str:
    files = {path: len(stored.data) for path, stored in sorted(state.image.files.items())}
    return f"after operation {state.after}, {[str(mark)[:80] for mark in state.marks[-2:]]}: {why}\n    of {files}"


def _recoveries(story: Story, trace: FileTrace, top: Path, effort: Effort) -> Iterator[FileTrace]:
    """Yield traces of recoveries from crash states of `trace`; they begin with its marks."""
    chance = random.Random(effort.seed)
    states = list(CrashStates(trace.operations, trace.initial, most=12, seed=effort.seed + 1))
    for state in chance.sample(states, min(effort.again, len(states))):
        again = recovered(story, state.image, _fresh(top), state.marks)
        if again is not None:
            yield again


def _kills(story: Story, top: Path, effort: Effort) -> Iterator[FileTrace]:
    """Yield traces of a process that was killed before one of its calls, and of the next one."""
    calls = len(traced(story, _fresh(top)).calls)
    chance = random.Random(effort.seed)
    for place in chance.sample(range(calls), min(effort.interruptions, calls)):
        fault = Fault(kill=True, short=chance.random() < 0.5)
        yield interrupted(story, _fresh(top), fault, at=lambda number, call, place=place: number == place)


def _failed_syncs(story: Story, top: Path, effort: Effort) -> Iterator[FileTrace]:
    """Yield traces in which a sync fails, whereupon the process is replaced."""
    calls = traced(story, _fresh(top)).calls
    places = [
        number
        for number, call in enumerate(calls)
        if call.name in SYNCS and effort.failing_after in ("", calls[number - 1].name)
    ]
    chance = random.Random(effort.seed)
    for place in chance.sample(places, min(effort.interruptions, len(places))):
        fault = Fault(errno=errno.EIO)
        yield interrupted(story, _fresh(top), fault, at=lambda number, call, place=place: number == place)


def _fresh(top: Path) -> Path:
    shutil.rmtree(top / "told", ignore_errors=True)
    return top / "told"
