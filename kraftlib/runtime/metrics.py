"""Counters of a replica at work, under the names of Kafka's `raft-metrics` (KIP-595, Quorum Metrics).

Counters are plain numbers and are touched once per batch, flush or turn, never per record. Averages, maxima and rates
cover the last 30 to 60 seconds, as Kafka's two samples of 30 seconds do; an average of nothing is NaN.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kraftlib.consensus.roles import Role
from kraftlib.records.batch import Batch
from kraftlib.types import Offset

WINDOW_NS: Final = 30 * 1_000_000_000


class Sampled:
    """Sum, count and maximum of the values recorded in the window that runs and in the one before it."""

    __slots__ = ("_before", "_began_ns", "_clock_ns", "_count", "_max", "_sum")

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._began_ns = clock_ns()
        self._sum = 0.0
        self._count = 0
        self._max = -math.inf
        self._before: tuple[int, float, int, float] | None = None

    def record(self, value: float, count: int = 1) -> None:
        """Add `value`, which stands for `count` things."""
        if self._clock_ns() - self._began_ns >= WINDOW_NS:
            self._roll()
        self._sum += value
        self._count += count
        if value > self._max:
            self._max = value

    def _roll(self) -> None:
        now = self._clock_ns()
        recent = now - self._began_ns < 2 * WINDOW_NS
        self._before = (self._began_ns, self._sum, self._count, self._max) if recent else None
        self._began_ns, self._sum, self._count, self._max = now, 0.0, 0, -math.inf

    def _windows(self) -> tuple[int, float, int, float]:
        if self._clock_ns() - self._began_ns >= WINDOW_NS:
            self._roll()
        began, total, count, top = self._before or (self._began_ns, 0.0, 0, -math.inf)
        return began, total + self._sum, count + self._count, max(top, self._max)

    @property
    def average(self) -> float:
        """Mean of a recorded thing, or NaN."""
        _, total, count, _ = self._windows()
        return total / count if count else math.nan

    @property
    def maximum(self) -> float:
        """The largest value recorded, or NaN."""
        _, _, count, top = self._windows()
        return top if count else math.nan

    @property
    def rate(self) -> float:
        """Sum of the recorded values, per second."""
        began, total, _, _ = self._windows()
        return total / max((self._clock_ns() - began) / 1e9, 1e-3)


class RaftMetrics:
    """Numbers of one replica. Changed by its executor alone, and read on any thread."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self.commit_latency = Sampled(clock_ns)
        """Ms from the drain of a batch to its commit, divided by its records: Kafka's way to count it."""
        self.batch_commit_latency = Sampled(clock_ns)
        """Ms from the drain of a batch to its commit."""
        self.election_latency = Sampled(clock_ns)
        self.flush_latency = Sampled(clock_ns)
        self.fetched = Sampled(clock_ns)
        self.appended = Sampled(clock_ns)
        self._idle_since: tuple[int, int] | None = None
        """Wall time and CPU time of the engine's thread when it was asked how idle it is."""
        self._election_began_ns: int | None = None
        self._uncommitted: deque[tuple[Offset, int, int, int]] = deque()
        """Last offset, bytes, records and time of the drain of each batch that is not committed yet."""

    def drained(self, batches: Sequence[Batch]) -> None:
        """The accumulator gave these batches to the log."""
        now = self._clock_ns()
        for batch in batches:
            count = batch.last_offset - batch.base_offset + 1
            self.appended.record(count)
            self._uncommitted.append((batch.last_offset, len(batch.data), count, now))

    def committed(self, high_watermark: Offset) -> int:
        """Everything below is committed; return how many bytes of drained batches that freed."""
        freed, uncommitted = 0, self._uncommitted
        if uncommitted and uncommitted[0][0] < high_watermark:
            now = self._clock_ns()
            while uncommitted and uncommitted[0][0] < high_watermark:
                _, size, count, began = uncommitted.popleft()
                freed += size
                elapsed_ms = (now - began) / 1e6
                self.commit_latency.record(elapsed_ms / count)
                self.batch_commit_latency.record(elapsed_ms)
        return freed

    def leadership_began(self) -> None:
        """A new accumulator: records that the last one drained are no longer counted."""
        self._uncommitted.clear()

    def role_changed(self, role: Role) -> None:
        """Measure how long elections take: from standing (each time anew) to leading or following."""
        now = self._clock_ns()
        if role in (Role.PROSPECTIVE, Role.CANDIDATE):
            self._election_began_ns = now
        elif role in (Role.LEADER, Role.FOLLOWER) and self._election_began_ns is not None:
            self.election_latency.record((now - self._election_began_ns) / 1e6)
            self._election_began_ns = None

    def _idle_ratio(self) -> float:
        """Return the share of time that the calling thread was not at work since this was last asked, or NaN."""
        now = (self._clock_ns(), time.thread_time_ns())
        since, self._idle_since = self._idle_since, now
        if since is None or now[0] == since[0]:
            return math.nan
        return min(1.0, max(0.0, 1.0 - (now[1] - since[1]) / (now[0] - since[0])))

    def to_dict(self) -> dict[str, float]:
        """Return the measured part under Kafka's names; the last three are ours."""
        return {
            "commit-latency-avg": self.commit_latency.average,
            "commit-latency-max": self.commit_latency.maximum,
            "election-latency-avg": self.election_latency.average,
            "election-latency-max": self.election_latency.maximum,
            "fetch-records-rate": self.fetched.rate,
            "append-records-rate": self.appended.rate,
            "poll-idle-ratio-avg": self._idle_ratio(),
            "batch-commit-latency-avg": self.batch_commit_latency.average,
            "batch-commit-latency-max": self.batch_commit_latency.maximum,
            "flush-latency-avg": self.flush_latency.average,
            "flush-latency-max": self.flush_latency.maximum,
        }
