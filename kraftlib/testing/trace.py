"""The trace of a run: its steps are counted and hashed, and the latest are kept.

The hash is over small integers only, so it is the same in every process, whatever PYTHONHASHSEED. Lines for people are
made only on request.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

KEPT: Final = 2_000
"""Number of latest steps that are kept if the trace is not printed."""


class Step(enum.IntEnum):
    """The kinds of things that stand in a trace. `a` and `b` of an entry mean what stands here."""

    STARTED = 1
    """a: incarnation."""
    STOPPED = 2
    """a: number of the reason."""
    PAUSED = 3
    RESUMED = 4
    ROLE = 5
    """a: number of the role, b: epoch."""
    COMMITTED = 6
    """a: high watermark, b: 1 if by the leader."""
    APPENDED = 7
    """a: base offset, b: epoch."""
    FLUSHED = 8
    """a: end offset."""
    TRUNCATED = 9
    """a: end offset."""
    PERSISTED = 10
    """a: epoch, b: leader id, or -1."""
    REQUEST = 11
    """Delivered. a: number of the sender, b: API key."""
    RESPONSE = 12
    """Delivered. a: number of the sender, b: API key."""
    LOST = 13
    """A message was lost. a: number of the sender, b: API key."""
    DISCONNECTED = 14
    """a: destination, b: 1 if refused."""
    FAULT = 15
    """a: number of the kind, b: duration in ms."""
    HEALED = 16
    """a: number of the kind."""
    CLIENT = 17
    """a: number of the append, b: number of its outcome."""
    INSTALLED = 18
    """a: offset of the snapshot."""
    PHASE = 19
    """a: number of the phase."""
    SNAPSHOT = 20
    """Written. a: offset, b: epoch."""
    VOTED = 21
    """A vote is about to be told, by the candidate itself too. a: the candidate, b: epoch."""


class Entry(NamedTuple):
    """One step: its node, kind and time."""

    time_us: int
    step: Step
    node: int
    """-1 where no node is meant."""
    a: int
    b: int
    note: str
    """For people; not hashed."""

    def __str__(self) -> str:
        who = f"node {self.node}" if self.node >= 0 else "world"
        note = f"  {self.note}" if self.note else ""
        return f"{self.time_us / 1e6:12.6f}  {who:<8} {self.step.name.lower():<12} {self.a:>6} {self.b:>6}{note}"


class Trace:
    """The trace of one run. `listener` is given every entry as it is made."""

    def __init__(self, *, listener: Callable[[Entry], None] | None = None) -> None:
        self.counts: Counter[Step] = Counter()
        self._digest = 0
        self._latest: deque[tuple[int, Step, int, int, int, str]] = deque(maxlen=KEPT)
        self._listener = listener

    def add(self, time_us: int, step: Step, node: int, a: int = 0, b: int = 0, note: str = "") -> None:
        """Take note of a step."""
        # The hash of a tuple of ints does not depend on PYTHONHASHSEED, and nothing else is as fast.
        self._digest = hash((self._digest, time_us, int(step), node, a, b))
        self.counts[step] += 1
        self._latest.append((time_us, step, node, a, b, note))
        if self._listener is not None:
            self._listener(Entry(time_us, step, node, a, b, note))

    @property
    def hash(self) -> str:
        """Sixteen hex digits that stand for everything that has happened so far."""
        return f"{self._digest & 0xFFFFFFFFFFFFFFFF:016x}"

    def latest(self) -> Iterator[Entry]:
        """Return the latest steps, oldest first."""
        return (Entry(*fields) for fields in self._latest)
