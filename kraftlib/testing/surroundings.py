"""The surroundings of a simulated replica beside its disk: the turns of its loop, and a background that takes time.

Both are for one life: nothing is done any more when the process has ended, and nothing is heard of while it is paused.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kraftlib.runtime.disk import Disk, Done
from kraftlib.runtime.pace import unhurried
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.storage.log.holds_file import StoredHold
from kraftlib.testing import invariants as inv
from kraftlib.testing.clock import MILLISECOND, Timeline

if TYPE_CHECKING:
    from kraftlib.testing.checker import Checker
    from kraftlib.testing.node import SimulatedNode
    from kraftlib.testing.process import Process

SLOWEST_US = 20 * MILLISECOND
"""Longest time that the background takes for one job."""

TIMER_LATE_US = 200
"""Timers fire up to this late."""


LISTENERS: Final = "Applier._turn"

ALARM: Final = "Assembly._timer_fired"

LATE_TURNS: Final = 0.3
"""Share of the turns of the listeners that are late, in a run that has such turns."""

ONE_AT_A_TIME: Final = frozenset({LISTENERS, "Executor._look"})
"""Turns of which one is due at most."""


class SimulatedTimer:
    """A call that is to come, as `kraftlib.runtime.loop.Timer`."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function: Callable[[], None] | None = function

    def cancel(self) -> None:
        """Let it not come."""
        self.function = None


class SimulatedLoop:
    """The loop that a replica thinks it runs on, as `kraftlib.runtime.loop.Loop`."""

    def __init__(self, process: Process, timeline: Timeline, checker: Checker) -> None:
        node = process.node
        self._process = process
        self._timeline = timeline
        self._checker = checker
        self._due = Counter[str]()
        self.is_alarm = False
        """Whether the time has come for which the core was asked."""
        self._random = node.random
        self._clock = node.clock
        self.now_ms: Callable[[], int] = node.clock.now_ms
        self.now_ns: Callable[[], int] = node.clock.now_ns
        self.wall_ms: Callable[[], int] = node.clock.wall_ms

    def call_soon(self, function: Callable[..., object], /, *arguments: Any) -> None:
        """Have `function` called in a later turn."""
        name = getattr(function, "__qualname__", "")
        if name not in ONE_AT_A_TIME:
            self._timeline.after(0, self._process.deliver, function, *arguments)
            return
        self._due[name] += 1
        self._checker.check(inv.i20_one_turn_at_a_time, self._process.node, name, self._due[name])
        self._timeline.after(self._lag_us(name), self._process.deliver, self._take_turn, name, function)

    def _lag_us(self, name: str) -> int:
        longest_us = self._process.world.turn_lag_us if name == LISTENERS else 0
        return int(self._random.random() * longest_us) if longest_us and self._random.random() < LATE_TURNS else 0

    @property
    def is_late(self) -> bool:
        """Whether a turn of the listeners is still to come."""
        return self._due[LISTENERS] > 0

    def _take_turn(self, name: str, function: Callable[[], object]) -> None:
        self._due[name] -= 1
        function()

    call_soon_threadsafe = call_soon

    def call_later(self, seconds: float, function: Callable[[], None], /) -> SimulatedTimer:
        """Have `function` called after so many seconds on the clock of the node."""
        return self.call_at(self.now_ms() + round(seconds * 1_000), function)

    def call_at(self, time_ms: int, function: Callable[[], None], /) -> SimulatedTimer:
        """Have `function` called when the clock of the node shows `time_ms`, or a little later."""
        timer = SimulatedTimer(function)
        at_us = max(self._clock.world_us(time_ms), self._timeline.now_us)
        self._timeline.at(at_us + int(self._random.random() * TIMER_LATE_US), self._process.deliver, self.fire, timer)
        return timer

    def fire(self, timer: SimulatedTimer) -> None:
        """The time of a timer has come."""
        if timer.function is not None:
            self.is_alarm = getattr(timer.function, "__qualname__", "") == ALARM
            timer.function()
            self.is_alarm = False


class SimulatedBackground:
    """Does one thing at a time, early or late in the time that it takes. It is the disk of itself."""

    def __init__(self, process: Process, timeline: Timeline) -> None:
        self.disk: Disk = self
        self.step: Callable[[], None] = unhurried
        self._process = process
        self._timeline = timeline
        self._random = process.node.random
        self._jobs: deque[tuple[Callable[[], Any], Done]] = deque()
        self._busy = False
        self._alone_us: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all that it was asked for is done."""
        return not self._busy and not self._jobs

    @contextmanager
    def alone(self, delay_us: int) -> Iterator[None]:
        """Let what is asked for within the block happen after so much time, as if nothing else were to be done."""
        self._alone_us = delay_us
        try:
            yield
        finally:
            self._alone_us = None

    def run(self, function: Callable[[], Any], done: Done) -> None:
        """As `Disk.run`. Work that a process asks for in its last moment is not done any more: it was killed."""
        if not (self._process.running or self._process.paused):
            return
        if self._alone_us is not None:
            self._timeline.after(self._alone_us, self._process.deliver, self._do_alone, function, done)
            return
        self._jobs.append((function, done))
        if not self._busy:
            self._begin()

    def flush(self, log: ReplicatedLog, done: Done) -> None:
        """As `Disk.flush`."""
        self.run(log.flush, done)

    def close(self) -> None:
        """Nothing to release."""

    def _begin(self) -> None:
        self._busy = True
        function, done = self._jobs.popleft()
        delay_us = int(self._random.random() * SLOWEST_US)
        if self._random.random() < 0.5:
            self._timeline.after(delay_us, self._process.deliver, self._end, done, *_outcome(function))
        else:
            self._timeline.after(delay_us, self._process.deliver, self._do_late, function, done)

    def _do_late(self, function: Callable[[], Any], done: Done) -> None:
        self._end(done, *_outcome(function))

    def _do_alone(self, function: Callable[[], Any], done: Done) -> None:
        done(*_outcome(function))

    def _end(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._busy = False
        done(result, error)
        if self._jobs and not self._busy:
            self._begin()


class SimulatedHolds:
    """Where a node keeps the holds of its readers from one life to the next."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node

    def read(self) -> Sequence[StoredHold]:
        """Return what was written last."""
        return self._node.holds

    def write(self, holds: Sequence[StoredHold]) -> None:
        """Replace what is stored."""
        self._node.save_holds(holds)

    def remove_late(self, name: str) -> None:
        """Take a hold out when the process has ended."""
        self._node.save_holds([hold for hold in self._node.holds if hold.name != name])


def _outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(), None
    except Exception as raised:  # noqa: BLE001 - whatever it is, the caller must hear of it
        return None, raised
