"""The judges that a program adds to a simulation, beside the invariants: each looks on at every step of one core.

The invariants judge a whole quorum. A judge knows one replica: it hands each event to the core, compares the actions
with those that it expects, and raises `BrokenRuleError` if they differ. A `Program` says which runs are judged.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.storage.memory import MemoryReplicatedLog


class BrokenRuleError(Exception):
    """A core took a step that a rule forbids, or left out one that a rule asks for."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        """Its id, as in the documentation: `RV1`."""
        self.what = what


class Judged(Protocol):
    """One life of a core, as its caller sees it. Raises: BrokenRuleError."""

    def start(self, now_ms: int) -> list[act.Action]:
        """As `Replica.start`."""
        ...

    def handle(self, event: ev.Event, now_ms: int) -> list[act.Action]:
        """As `Replica.handle`."""
        ...


Judge = Callable[[Replica], Judged]
"""Puts a judge before a core, at the beginning of each life."""


Recovery = Callable[[MemoryReplicatedLog, Random], MemoryReplicatedLog]
"""Returns what the storage of a replica finds of a log after the power went; the log is not used any more."""


def not_judged(seed: int, profile: str) -> Judge | None:
    """Return no judge: the invariants alone look at a run."""
    return None


@attrs.frozen(kw_only=True)
class Program:
    """A program that simulates seeds. It may be sent to other processes."""

    command: str
    """The beginning of the command that runs a seed again."""
    judge_of: Callable[[int, str], Judge | None] = not_judged
    """Returns the judge of a seed of a profile, or None; a function of a module."""
    recovery: Recovery | None = None
    """Takes the place of the model of a power loss now and then."""


SIMULATE: Final = Program(command="kraftlib simulate")
"""The command of the library."""
