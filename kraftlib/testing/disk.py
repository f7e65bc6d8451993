"""The disk of one simulated node: it takes time, can hang and fail, and a crash loses what was not flushed.

The stores of `kraftlib.storage.memory` say what survives; here is when. A flush and the write of an election come in
two halves, so that a crash between them has its honest outcomes.
"""

from __future__ import annotations

import random as chance
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import attrs

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.runtime.disk import Done
from kraftlib.storage.damage.scrub import ScrubFinding
from kraftlib.storage.interface import ReplicatedLog, SnapshotSink, SnapshotSource
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.testing.clock import MILLISECOND, Timeline
from kraftlib.testing.damage import DamagedLog
from kraftlib.types import ElectionState, Epoch, EpochStart, Offset, OffsetAndEpoch, OffsetRange

SLOW_US = 20 * MILLISECOND
"""A disk that may take longer than this holds up its replica."""


class InjectedStorageError(StorageError):
    """The simulated disk failed because it was told to."""


class SimulatedDisk:
    """Does one thing at a time, in the order in which it was asked, as `kraftlib.runtime.disk.ThreadDisk` does.

    The faults are plain attributes. `hung` jobs end when it is set back, or never; `failing` makes the next job that
    writes fail; a `full` disk takes what is on its way, and says that there should not be more.
    """

    def __init__(self, timeline: Timeline, random: chance.Random) -> None:
        self.shortest_us = 60
        self.spread_us = 400
        self.inline = False
        """Everything takes no time at all, and is done when the call returns."""
        self.hung = False
        self.failing = False
        self.full = False
        self.jobs_done = 0
        self._timeline = timeline
        self._random = random
        self._jobs: deque[tuple[Callable[[], Any], Done]] = deque()
        self._second_halves: list[Callable[[], Any]] = []
        self._life = 0
        self._busy = False
        self._stuck: tuple[Any, BaseException | None] | None = None

    def run(self, function: Callable[[], Any], done: Done) -> None:
        """Do `function` behind all earlier work; then call `done` with its result."""
        self._jobs.append((function, done))
        if not self._busy:
            self._begin()

    def flush(self, log: ReplicatedLog, done: Done) -> None:
        """As `run`: the log of a simulated node brings its own second half."""
        self.run(log.flush, done)

    def finish_later(self, second_half: Callable[[], Any]) -> None:
        """Called by a function that `run` is running: it is complete with `second_half`, when its time is over.

        Its result is that of the second half, unless it does more than that and has a result of its own.
        """
        self._second_halves.append(second_half)

    @property
    def is_busy(self) -> bool:
        """Whether it is doing something."""
        return self._busy

    @property
    def is_stuck(self) -> bool:
        """Whether it is hung, or busy with something that takes very long."""
        return self.hung or self.spread_us > SLOW_US

    def unhang(self) -> None:
        """Let everything go on that `hung` held back."""
        self.hung = False
        if self._stuck is not None:
            result, error = self._stuck
            self._stuck = None
            self._end(self._life, result, error)

    def lose_power(self) -> None:
        """Forget what was being done. The stores know the remains."""
        self._life += 1
        self._busy = False
        self._jobs.clear()
        self._second_halves.clear()
        self._stuck = None

    def close(self) -> None:
        """Finish nothing: a simulated process ends by a crash or by its executor's stop."""
        self.lose_power()

    def _begin(self) -> None:
        self._busy = True
        function, _ = self._jobs[0]
        self._second_halves.clear()
        try:
            result, error = function(), None
        except Exception as raised:  # noqa: BLE001 - whatever it is, the executor must hear of it
            result, error = None, raised
        if self.inline and not self.hung:
            self._end(self._life, result, error)
        else:
            delay_us = self.shortest_us + int(self._random.random() * self.spread_us)
            self._timeline.after(delay_us, self._end, self._life, result, error)

    def _end(self, life: int, result: Any, error: BaseException | None) -> None:
        if life != self._life:
            return
        if self.hung:
            self._stuck = (result, error)
            return
        if self._second_halves and error is None:
            if self.failing:
                self.failing = False
                error = InjectedStorageError("fsync failed: Input/output error (injected)")
            else:
                finished = [second_half() for second_half in self._second_halves]
                result = finished[-1] if result is None or isinstance(result, int) else result
        self._second_halves.clear()
        self.jobs_done += 1
        self._busy = False
        _, done = self._jobs.popleft()
        done(result, error)
        if self._jobs and not self._busy:
            self._begin()


class LogObserver(Protocol):
    """Is called for every change of a node's log."""

    def appended(self, batches: Sequence[Batch]) -> None:
        """These batches stand in the log."""
        ...

    def flushed(self, end_offset: Offset) -> None:
        """Everything below is durable."""
        ...

    def truncated(self, end_offset: Offset) -> None:
        """The log ends here now."""
        ...

    def deleted(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log begins at the end of this snapshot now."""
        ...

    def installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log begins anew behind this snapshot."""
        ...

    def stored(self, snapshot_id: OffsetAndEpoch) -> None:
        """There is a snapshot of this id."""
        ...

    def persisted(self, election: ElectionState) -> None:
        """The election state is durable."""
        ...


class _WatchedSink:
    """A snapshot that is being written; the observer hears when it is there."""

    def __init__(self, inner: SnapshotSink, stored: Callable[[], None]) -> None:
        self._inner = inner
        self._stored = stored
        self.write = inner.write
        self.read_at = inner.read_at
        self.abort = inner.abort

    @property
    def size(self) -> int:
        """As `SnapshotSink.size`."""
        return self._inner.size

    def freeze(self) -> None:
        """As `SnapshotSink.freeze`."""
        self._inner.freeze()
        self._stored()


class SimulatedLog:
    """A `MemoryReplicatedLog` whose flushes take their time on a simulated disk, and that is watched."""

    def __init__(
        self, log: MemoryReplicatedLog, disk: SimulatedDisk, observer: LogObserver, random: chance.Random
    ) -> None:
        self.inner = log
        self._disk = disk
        self._observer = observer
        self._random = random
        # These change nothing: no need to stand in between.
        self.epoch_starts: Callable[[], Sequence[EpochStart]] = log.epoch_starts
        self.begin_epoch: Callable[[Epoch, Offset], None] = log.begin_epoch
        self.read: Callable[[Offset, int], Sequence[Batch]] = log.read
        self.snapshots: Callable[[], Sequence[OffsetAndEpoch]] = log.snapshots
        self.open_snapshot: Callable[[OffsetAndEpoch], SnapshotSource] = log.open_snapshot
        self.close: Callable[[], None] = log.close

    @property
    def start_offset(self) -> Offset:
        """As `ReplicatedLog.start_offset`."""
        return self.inner.start_offset

    @property
    def end_offset(self) -> Offset:
        """As `ReplicatedLog.end_offset`."""
        return self.inner.end_offset

    @property
    def flushed_offset(self) -> Offset:
        """As `ReplicatedLog.flushed_offset`."""
        return self.inner.flushed_offset

    @property
    def size_bytes(self) -> int:
        """As `ReplicatedLog.size_bytes`."""
        return self.inner.size_bytes

    @property
    def is_full(self) -> bool:
        """As `RoomyLog.is_full`."""
        return self._disk.full

    def look_at_space(self) -> None:
        """As `RoomyLog.look_at_space`: there is nothing to look at."""

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotSink:
        """As `ReplicatedLog.create_snapshot`."""
        return _WatchedSink(self.inner.create_snapshot(snapshot_id), partial(self._observer.stored, snapshot_id))

    def append(self, batches: Sequence[Batch]) -> None:
        """As `ReplicatedLog.append`."""
        self.inner.append(batches)
        self._observer.appended(batches)

    def flush(self) -> Offset:
        """As `ReplicatedLog.flush`, on the disk: the result comes with the second half."""
        flush = self.inner.begin_flush()
        self._disk.finish_later(partial(self._finish_flush, flush))
        return self.inner.flushed_offset

    def _finish_flush(self, flush: Any) -> Offset:
        end_offset = self.inner.finish_flush(flush)
        self._observer.flushed(end_offset)
        return end_offset

    def truncate(self, end_offset: Offset) -> Offset:
        """As `ReplicatedLog.truncate`, on the disk: it happens early or late in its time."""
        if self._random.random() < 0.5:
            return self._truncate(end_offset)
        self._disk.finish_later(partial(self._truncate, end_offset))
        return end_offset

    def _truncate(self, end_offset: Offset) -> Offset:
        end_offset = self.inner.truncate(end_offset)
        self._observer.truncated(end_offset)
        return end_offset

    # --- RemembersControls and RepairableLog: a disk may lose what it had ---------------------------------------------

    def control_batches(self) -> Sequence[Batch]:
        """As `RemembersControls.control_batches`, those left out that cannot be read."""
        holes = self.holes()
        return [
            batch
            for batch in self.inner.batches()
            if batch.is_control and not any(hole.start_offset <= batch.base_offset < hole.end_offset for hole in holes)
        ]

    def holes(self) -> Sequence[OffsetRange]:
        """As `RepairableLog.holes`."""
        return self.inner.holes() if isinstance(self.inner, DamagedLog) else ()

    def find_damage(self, offset: Offset) -> Sequence[OffsetRange]:
        """As `RepairableLog.find_damage`."""
        return self.inner.find_damage(offset) if isinstance(self.inner, DamagedLog) else ()

    def write_repair(self, batches: Sequence[Batch]) -> bool:
        """As `RepairableLog.write_repair`; records beyond the old end are news."""
        log, end_offset = self.inner, self.inner.end_offset
        full = isinstance(log, DamagedLog) and log.write_repair(batches)
        if full and log.end_offset > end_offset:
            self._observer.appended([batch for batch in log.batches() if batch.base_offset >= end_offset])
        return full

    def scrub(self, step: Callable[[], None]) -> Iterator[int | ScrubFinding]:
        """As `ScrubbedLog.scrub`: reading finds unknown damage."""
        if not isinstance(self.inner, DamagedLog):  # to read each batch of a sound log would find nothing
            step()
            yield self.inner.size_bytes
            return
        for batch in self.inner.batches():
            step()
            if not self.start_offset <= batch.base_offset < self.end_offset:
                continue  # it went meanwhile
            try:
                yield sum(len(read.data) for read in self.read(batch.base_offset, 1))
            except CorruptBatchError as error:
                yield ScrubFinding(path=Path("simulated.log"), offset=batch.base_offset, reason=str(error))

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """As `ReplicatedLog.delete_before`. A missing range may go: no reader can hold it."""
        whole = not self.holes()
        self.inner.delete_before(snapshot_id)
        if whole:
            self._observer.deleted(snapshot_id)

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """As `ReplicatedLog.install_snapshot`."""
        self.inner.install_snapshot(snapshot_id)
        self._observer.installed(snapshot_id)


class SimulatedElections:
    """A `MemoryQuorumStateStore` whose writes take their time on a simulated disk, and that is watched."""

    def __init__(self, store: MemoryQuorumStateStore, disk: SimulatedDisk, observer: LogObserver) -> None:
        self.inner = store
        self._disk = disk
        self._observer = observer

    def read(self) -> ElectionState | None:
        """As `QuorumStateStore.read`."""
        return self.inner.read()

    def write(self, election: ElectionState, *, kraft_version: int, voters: Sequence[int] = ()) -> None:
        """As `QuorumStateStore.write`, on the disk: until its time is over, a crash leaves the old state or the new."""
        static_voters = () if kraft_version else tuple(sorted(voters))
        self.inner.begin_write(attrs.evolve(election, static_voters=static_voters))
        self._disk.finish_later(partial(self._finish_write, election))

    def _finish_write(self, election: ElectionState) -> None:
        self.inner.finish_write()
        self._observer.persisted(election)

    def close(self) -> None:
        """As `QuorumStateStore.close`."""
        self.inner.close()
