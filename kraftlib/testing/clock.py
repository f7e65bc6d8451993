"""Simulated time: one queue of future events, and a clock per node that may run wrong.

The world counts microseconds. Events of the same microsecond happen in the order in which they were asked for, so a run
depends on its seed and on nothing else. Nodes read milliseconds from clocks of their own, which start anywhere and
drift.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

from kraftlib.errors import ensure

MILLISECOND: Final = 1_000
"""One millisecond of the world, in microseconds."""

SECOND: Final = 1_000_000

MILLION: Final = 1_000_000


class Timeline:
    """The world's time and everything that is still to happen."""

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        """Number of events so far."""
        self.halted = False
        """Set to end `run` when the event that is happening is over."""
        self._heap: list[tuple[int, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._sequence = 0

    @property
    def now_ms(self) -> int:
        """The world's time in ms."""
        return self.now_us // MILLISECOND

    def at(self, time_us: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Let `function` be called at `time_us`, or now if that has passed: behind all that was asked for before."""
        self._sequence += 1
        now_us = self.now_us
        heapq.heappush(self._heap, (time_us if time_us > now_us else now_us, self._sequence, function, arguments))

    def after(self, delay_us: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Let `function` be called `delay_us` from now."""
        self.at(self.now_us + delay_us, function, *arguments)

    def run(self, until_us: int, stop: Callable[[], bool] | None = None) -> None:
        """Let everything happen up to and including `until_us`, or until `stop()` holds after an event."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until_us:
            self.now_us, _, function, arguments = pop(heap)
            self.events += 1
            function(*arguments)
            if self.halted or (stop is not None and stop()):
                return
        self.now_us = max(self.now_us, until_us)


class NodeClock:
    """The monotonic clock of one node: `now_ms()` never falls, but need not agree with the clocks of other nodes.

    `rate_ppm` is how fast it runs: 1,000,000 is right, 1,200,000 gains 20 %.
    """

    def __init__(self, timeline: Timeline, *, offset_ms: int = 0, rate_ppm: int = MILLION) -> None:
        ensure(rate_ppm > 0, f"a clock does not stand still or run backwards: rate_ppm={rate_ppm}")
        self._timeline = timeline
        self._base_us = timeline.now_us
        self._local_us = offset_ms * MILLISECOND
        self._rate_ppm = rate_ppm
        self.wall_offset_ms = 0
        """Wall clock minus this clock, in ms. May jump."""

    @property
    def rate_ppm(self) -> int:
        """The speed of the clock."""
        return self._rate_ppm

    @rate_ppm.setter
    def rate_ppm(self, rate_ppm: int) -> None:
        ensure(rate_ppm > 0, f"a clock does not stand still or run backwards: rate_ppm={rate_ppm}")
        self._local_us = self._now_us()
        self._base_us = self._timeline.now_us
        self._rate_ppm = rate_ppm

    @property
    def steady_since_us(self) -> int:
        """When its speed was set last, in the world's time."""
        return self._base_us

    def now_ms(self) -> int:
        """Milliseconds on this clock."""
        if self._rate_ppm == MILLION:  # most are right, and all are asked all the time
            return (self._local_us + self._timeline.now_us - self._base_us) // MILLISECOND
        return self._now_us() // MILLISECOND

    def now_ns(self) -> int:
        """Nanoseconds on this clock."""
        return self._now_us() * 1_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this node believes."""
        return self.now_ms() + self.wall_offset_ms

    def world_us(self, local_ms: int) -> int:
        """Return when, in the world's time, this clock will show `local_ms`, if its rate stays what it is."""
        ahead_us = local_ms * MILLISECOND - self._local_us
        return self._base_us - (-ahead_us * MILLION // self._rate_ppm)

    def _now_us(self) -> int:
        elapsed = self._timeline.now_us - self._base_us
        if self._rate_ppm != MILLION:
            elapsed = elapsed * self._rate_ppm // MILLION
        return self._local_us + elapsed
