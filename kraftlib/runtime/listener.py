"""The application's side of the log: KRaft's `Listener` with its batches, and the simple `StateMachine` on top.

A listener gets every committed batch in order and exactly once, a snapshot where the log no longer reaches back far
enough, and the changes of leadership. Control batches come too, with no values, so that its position can reach the high
watermark.

All of these are called on the engine's loop, one at a time, and share it with the replica: **they must not block.**
What takes longer holds the reader, returns, and goes on elsewhere, a thread for instance; `close` then asks for the
next one. Two methods of a state machine may take their time, since they run beside the loop: `restore`, and the
iteration over what `freeze` returned.

The application's functions are called in comprehensions and never by `map`: a StopIteration that one of them raises, a
bare `next()` for instance, would end a `map` without a word, and the records behind it would be skipped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from kraftlib.errors import ClosedError
from kraftlib.records.batch import Batch
from kraftlib.records.control import ControlRecord, decode_control_batch
from kraftlib.records.serde import BytesSerde, RecordSerde
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.disk import Disk, InlineDisk
from kraftlib.runtime.pace import unhurried
from kraftlib.types import Epoch, LeaderAndEpoch, Offset, OffsetAndEpoch

T = TypeVar("T")


def is_ctrl_c(error: BaseException) -> bool:
    """Whether Ctrl-C was pressed during a call of the application: the host handles that."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


class CommittedRecord(NamedTuple):
    """One record as a state machine sees it. A named tuple, because there are many of them."""

    offset: Offset
    epoch: Epoch
    timestamp_ms: int
    """Ms since 1970: when the leader encoded the batch."""
    value: Any
    """As the serde decoded it."""


class CommittedBatch:
    """A committed batch. Decoded when first asked for, once for all listeners."""

    __slots__ = ("_batch", "_serde", "_values")

    def __init__(self, batch: Batch, serde: RecordSerde[Any]) -> None:
        self._batch = batch
        self._serde = serde
        self._values: Sequence[Any] | None = None

    @property
    def base_offset(self) -> Offset:
        """Offset of the first record."""
        return self._batch.base_offset

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, inclusive."""
        return self._batch.last_offset

    @property
    def epoch(self) -> Epoch:
        """Epoch of the leader that appended it."""
        return self._batch.epoch

    @property
    def append_timestamp_ms(self) -> int:
        """Ms since 1970."""
        return self._batch.max_timestamp

    @property
    def size(self) -> int:
        """Bytes in the log."""
        return self._batch.size

    @property
    def is_control(self) -> bool:
        """Whether it holds control records, hence no values."""
        return self._batch.is_control

    @property
    def values(self) -> Sequence[Any]:
        """The values of a data batch; of a control batch none."""
        if self._values is None:
            values = self._batch.values()
            bare = type(self._serde) is BytesSerde
            from_bytes = self._serde.from_bytes
            self._values = values if bare else [from_bytes(value) for value in values]
        return self._values

    @property
    def raw_values(self) -> Sequence[bytes]:
        """The values as they are stored."""
        return self._batch.values()

    @property
    def records(self) -> Iterator[CommittedRecord]:
        """The records of a data batch with their places; of a control batch none."""
        epoch, timestamp = self._batch.epoch, self._batch.max_timestamp
        for offset, value in enumerate(self.values, self._batch.base_offset):
            yield CommittedRecord(offset, epoch, timestamp, value)

    @property
    def control_records(self) -> Sequence[ControlRecord]:
        """The decoded control records of a control batch."""
        return [record for _, record in decode_control_batch(self._batch)] if self._batch.is_control else ()

    def __repr__(self) -> str:
        return f"<Committed{self._batch!r}>"


class BatchReader:
    """Some committed batches, in order; iterate over them once.

    Closed when the callback returns, unless it called `hold`: then by `close`, from whichever thread. A listener has at
    most one reader at a time: the next one comes when this is closed, and only then these batches count as applied.
    """

    def __init__(self, batches: Sequence[CommittedBatch], on_close: Callable[[], None]) -> None:
        self._batches = batches
        self._next = iter(batches)
        self._on_close = on_close
        self.held = False
        self.closed = False

    @property
    def base_offset(self) -> Offset:
        """Offset of the first record."""
        return self._batches[0].base_offset

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, inclusive."""
        return self._batches[-1].last_offset

    def hold(self) -> None:
        """Keep this reader open after the callback has returned."""
        self.held = True

    def close(self) -> None:
        """Release these batches. Calling it twice is allowed."""
        if not self.closed:
            self.closed = True
            self._on_close()

    def __iter__(self) -> Iterator[CommittedBatch]:
        return self

    def __next__(self) -> CommittedBatch:
        return next(self._next)

    def __enter__(self) -> BatchReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LoadedSnapshot:
    """A stored snapshot, for a listener to load. Every batch is verified as it is read, and the footer at the end.

    Closed when the callback returns, unless it called `hold`: then by `close`, from whichever thread. Nothing else is
    given to the listener before; meanwhile it still counts as standing where it stood.
    """

    def __init__(
        self,
        snapshot_id: OffsetAndEpoch,
        reader: SnapshotReader,
        serde: RecordSerde[Any],
        *,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.snapshot_id = snapshot_id
        """It replaces every record below `snapshot_id.offset`."""
        self.held = False
        self.closed = False
        self.error: BaseException | None = None
        """Why it could not be loaded."""
        self.unreadable: Exception | None = None
        """The error that ended the reading before the end, if there was one."""
        self._reader = reader
        self._serde = serde
        self._on_close = on_close
        self._step: Callable[[], None] = unhurried

    @property
    def last_contained_log_timestamp_ms(self) -> int:
        """Ms since 1970: timestamp of the last record that it covers."""
        return self._reader.header.last_contained_log_timestamp

    def values(self) -> Iterator[Any]:
        """Yield what the state machine wrote into it."""
        for batch in self:
            yield from batch.values

    def __iter__(self) -> Iterator[CommittedBatch]:
        """Yield its data batches; their offsets count from the beginning of the snapshot."""
        for batch in self.noting(self._reader.batches()):
            yield CommittedBatch(batch, self._serde)
            self._step()

    def noting(self, items: Iterator[T]) -> Iterator[T]:
        """Yield these, and note what they raise: it is not the listener's fault."""
        try:
            yield from items
        except ClosedError:
            raise
        except Exception as error:
            self.unreadable = error
            raise

    def hold(self, *, step: Callable[[], None] = unhurried) -> None:
        """Keep it open after the callback has returned; `step` is called after each batch that was read."""
        self.held = True
        self._step = step

    def close(self, error: BaseException | None = None) -> None:
        """Be done with it; with an error the listener is stopped, as if the callback had raised it.

        If it could not be read to its end it was not loaded, whatever the listener says: it is given another one.
        """
        if not self.closed:
            self.error = error if self.unreadable is None else self.unreadable
            self._reader.close()
            self.closed = True
            self._on_close()


class Listener:
    """KRaft's listener: override the methods that you need.

    An exception in a callback stops this listener, which gets no further calls; the replica continues. Without a state
    machine nothing counts as applied from then on, until the listener is unregistered: waiting callers get an error.
    """

    def handle_commit(self, reader: BatchReader) -> None:
        """Take committed batches. They follow what was given before, without a gap."""

    def handle_load_snapshot(self, reader: LoadedSnapshot) -> None:
        """Forget everything and begin with this snapshot: the log does not reach back to where this listener stands.

        Let a CorruptBatchError of the reader pass: the snapshot has rotted on the disk. Forget what was loaded of it;
        another snapshot follows, or the log from its beginning.
        """

    def handle_load_bootstrap(self, reader: LoadedSnapshot) -> None:
        """Take the checkpoint with which a dynamic quorum was formatted: control records, hardly ever of interest.

        Kafka 4.4 puts there, too, what the first controller of a cluster is to write (KIP-1170). It is not committed.
        """

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Hear of the leader: at most twice an epoch, first without one.

        A leader hears of itself once it was given everything from before its epoch. No notice says that it resigned:
        until the next epoch, failed appends and `status()` do.
        """

    def begin_shutdown(self) -> None:
        """The client is about to close."""


class StateMachine:
    """The simple way: records in, results out, the state in memory.

    `apply` must be a function of the state and the record alone, because every replica calls it, and on every replica
    it must have the same result. It refuses a record by its result: an exception stops this state machine.
    """

    def apply(self, record: CommittedRecord) -> Any:
        """Change the state by a committed record; the result goes to the caller that proposed it on this replica."""
        raise NotImplementedError

    def snapshot(self) -> Iterable[Any]:
        """Return values from which `restore` rebuilds the state as it is now.

        They are written while further records are applied: what is returned must not change with them.
        """
        raise NotImplementedError

    def freeze(self) -> Iterable[Any]:
        """Return what `snapshot` would, to be iterated over later, on another thread, while records are applied.

        This runs on the loop and blocks it: by default it reads all of `snapshot()`, a tenth of a second
        for a million values. A large state is better copied as a whole and taken apart later, for instance
        `copy = dict(self.items)`, then `return copy.items()`. What it holds must not be changed in place.
        """
        return list(self.snapshot())

    def restore(self, values: Iterable[Any]) -> None:
        """Replace the state by that of a snapshot.

        It runs beside the loop, so that a large state does not hold up the replica. Nothing is applied meanwhile; but
        a reader of the state that uses neither `read_barrier` nor `wait_for_offset` may see it half restored,
        unless it is built aside and put in place at the end. If `values` raises, the snapshot is not whole.
        """
        raise NotImplementedError

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Hear of the leader, as `Listener.handle_leader_change` does."""


class StateMachineListener(Listener):
    """Feeds a state machine, and passes its results to the waiting callers.

    `deliver(end_offset, base_offset, results)` is called per batch; `wants_results` says whether a caller waits.
    Snapshots are restored in the `background`, and `step` is called after each batch of them.
    """

    def __init__(
        self,
        machine: StateMachine,
        *,
        deliver: Callable[[Offset, Offset, Sequence[Any]], None],
        wants_results: Callable[[], bool],
        background: Disk | None = None,
        step: Callable[[], None] = unhurried,
    ) -> None:
        self.machine = machine
        self._deliver = deliver
        self._wants_results = wants_results
        self._background = background or InlineDisk()
        self._step = step

    def handle_commit(self, reader: BatchReader) -> None:
        """Apply every record of every batch."""
        apply = self.machine.apply
        for batch in reader:
            if batch.is_control:
                continue
            if self._wants_results():
                self._deliver(batch.last_offset + 1, batch.base_offset, [apply(record) for record in batch.records])
            else:
                for record in batch.records:
                    apply(record)

    def handle_load_snapshot(self, reader: LoadedSnapshot) -> None:
        """Restore the state from the values of the snapshot, beside the loop."""
        reader.hold(step=self._step)
        self._background.run(lambda: self.machine.restore(reader.values()), lambda _, error: reader.close(error))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Pass it on."""
        self.machine.leader_changed(leader)
