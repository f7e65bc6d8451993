"""The batches and snapshots that listeners are given, and the readers that they come in."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from kraftlib.errors import ClosedError
from kraftlib.records.batch import Batch
from kraftlib.records.control import ControlRecord, decode_control_batch
from kraftlib.records.serde import BytesSerde, RecordSerde
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.pace import unhurried
from kraftlib.types import Epoch, Offset, OffsetAndEpoch

T = TypeVar("T")


class CommittedRecord(NamedTuple):
    """One record as a state machine sees it. A named tuple, because there are many of them."""

    offset: Offset
    epoch: Epoch
    timestamp_ms: int
    """Ms since 1970: when the leader encoded the batch."""
    value: Any
    """As the serde decoded it."""
    version: int = 0
    """The version of the command, for a machine of `kraftlib.machines`; 0 for any other."""


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


class SkippingBatch(CommittedBatch):
    """A batch with records that an operator has skipped (`kraftlib skip-record`).

    They are not decoded. `values` has None in their places, so that positions stay offsets; `records` leaves them out.
    """

    __slots__ = ("_skipped",)

    def __init__(self, batch: Batch, serde: RecordSerde[Any], skipped: Container[Offset]) -> None:
        super().__init__(batch, serde)
        self._skipped = skipped

    @property
    def values(self) -> Sequence[Any]:
        """The values, None where a record is skipped."""
        if self._values is None:
            from_bytes, stored = self._serde.from_bytes, enumerate(self._batch.values(), self._batch.base_offset)
            self._values = [None if offset in self._skipped else from_bytes(value) for offset, value in stored]
        return self._values

    @property
    def records(self) -> Iterator[CommittedRecord]:
        """The records that are not skipped, with their places."""
        return (record for record in super().records if record.offset not in self._skipped)


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
