"""The program `python3 dev.py simulate`: its command, and the runs that the rules judge."""

from __future__ import annotations

from typing import Final

from kraftlib.testing.judge import Judge, Program
from tools.rules import Referee

COMMAND: Final = "python3 dev.py simulate"

JUDGED_ONE_IN: Final = 2
"""Of so many seeds one is held against the rules at each step, which doubles its cost."""

NEVER_JUDGED: Final = frozenset({"hours", "quiet", "calm"})
"""Profiles whose runs are long, or measure speed."""


def judge_of(seed: int, profile: str) -> Judge | None:
    """Return the referee of a seed, or None if only the invariants look at it."""
    return Referee if seed % JUDGED_ONE_IN == 0 and profile not in NEVER_JUDGED else None


PROGRAM: Final = Program(command=COMMAND, judge_of=judge_of)
