"""The program `python3 dev.py simulate`: its command, the runs that the rules judge, and what the others count."""

from __future__ import annotations

from functools import partial
from typing import Final

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.testing.judge import Judge, Judged, Program
from tools.core_fuzz.coverage import Coverage, answer_of, kind_of, situation_of
from tools.rules import Referee
from tools.storage_proof import platter

COMMAND: Final = "python3 dev.py simulate"

JUDGED_ONE_IN: Final = 2
"""Of so many seeds one is held against the rules at each step, which doubles its cost."""

NEVER_JUDGED: Final = frozenset({"hours", "quiet", "calm"})
"""Profiles whose runs are long, or measure speed."""


class Watch:
    """Counts the pairs that a core reaches, and holds its steps against the rules if it is judged."""

    def __init__(self, core: Replica, *, coverage: Coverage, is_judged: bool) -> None:
        self._core = core
        self._judged: Judged = Referee(core) if is_judged else core
        self._coverage = coverage

    def start(self, now_ms: int) -> list[act.Action]:
        """As `Replica.start`."""
        return self._judged.start(now_ms)

    def handle(self, event: ev.Event, now_ms: int) -> list[act.Action]:
        """As `Replica.handle`."""
        situation = situation_of(self._core.state)
        actions = self._judged.handle(event, now_ms)
        self._coverage.count(situation, kind_of(event), answer_of(event, actions))
        return actions


def judge_of(seed: int, profile: str) -> Judge | None:
    """Return the referee of a seed, or None if only the invariants look at it."""
    return Referee if seed % JUDGED_ONE_IN == 0 and profile not in NEVER_JUDGED else None


def counting(coverage: Coverage) -> Program:
    """Return the program for one run whose pairs are counted."""

    def watch_of(seed: int, profile: str) -> Judge:
        return partial(Watch, coverage=coverage, is_judged=judge_of(seed, profile) is not None)

    return Program(command=COMMAND, judge_of=watch_of, recovery=platter.crash)


PROGRAM: Final = Program(command=COMMAND, judge_of=judge_of, recovery=platter.crash)
