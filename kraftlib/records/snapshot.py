"""Snapshots (checkpoints) as streams of batches: written front to back, read front to back, one batch in memory.

    header batch   control: SnapshotHeader; KRaftVersion and Voters where kraft.version >= 1
    data batches   the state, as the records that would make it
    footer batch   control: SnapshotFooter, and then nothing more

Base offsets count the records of the file from 0; every epoch is that of the snapshot. There is no checksum over the
whole, so each batch is checked against its own, and only the footer proves that nothing is missing (KIP-630).

Kafka stamps each batch with the time of writing, so its replicas have different bytes for equal states. Ours stamp all
with the timestamp of the last record that the snapshot covers: equal state, equal bytes, however it was appended.

The storage decides on names and durability; this module has bytes only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, Final, Protocol

from kraftlib.errors import ConfigError, CorruptBatchError, KraftError, RecordTooLargeError, ensure
from kraftlib.records.batch import (
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    Batch,
    batch_size,
    check_kraft_header,
    encode_batch,
    read_batch,
)
from kraftlib.records.compression import Codec
from kraftlib.records.control import (
    ControlRecord,
    check_kraft_version,
    check_voters,
    decode_control_batch,
    encode_control_batch,
)
from kraftlib.records.control_messages import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftlib.records.values import RECORD_OVERHEAD_MAX, record_size

BATCH_MAX_BYTES: Final = 8 * 1024 * 1024
READ_BATCH_MAX_BYTES: Final = 64 * 1024 * 1024
_WINDOW: Final = 1024 * 1024


class SnapshotWriter:
    """Writes one snapshot through `write`: the header at once, then what is appended, and the footer when frozen.

    `last_contained_log_timestamp` is that of the last record that the snapshot covers; `timestamp_ms`, with which
    batches are stamped when begun, is the same unless given or set later. `voters` is wanted from kraft.version 1 on.
    A batch is full at `batch_bytes`; only a single value may make a larger one, up to `batch_max_bytes`. Not more than
    a batch is ever in memory.
    """

    def __init__(
        self,
        write: Callable[[bytes | memoryview], object],
        *,
        epoch: int,
        last_contained_log_timestamp: int,
        kraft_version: int = 0,
        voters: VotersRecord | None = None,
        timestamp_ms: int | None = None,
        batch_bytes: int = BATCH_MAX_BYTES,
        batch_max_bytes: int = BATCH_MAX_BYTES,
        codec: Codec = Codec.NONE,
    ) -> None:
        self.epoch = epoch
        self.timestamp_ms = last_contained_log_timestamp if timestamp_ms is None else timestamp_ms
        self.next_offset = 0
        self.size = 0
        self.frozen = False
        self._write = write
        self._batch_bytes = min(batch_bytes, batch_max_bytes)
        self._batch_max_bytes = batch_max_bytes
        self._codec = codec
        self._values: list[bytes] = []
        self._bound = HEADER_SIZE
        self._begun_ms = 0
        header: list[ControlRecord] = [SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_log_timestamp)]
        if kraft_version >= 1:
            if voters is None:
                raise ConfigError(f"a snapshot of kraft.version {kraft_version} names its voters")
            header += [KRaftVersionRecord(kraft_version=kraft_version), voters]
        self._put_control(header)

    def append(self, values: Iterable[bytes]) -> None:
        """Add records. They leave in batches as large as the limit allows, independent of how they were handed over.

        Raises: RecordTooLargeError for a value that no batch can hold; ConfigError for one that is empty.
        """
        ensure(not self.frozen, "the snapshot is frozen")
        for value in values:
            if not value:
                raise ConfigError("a value must not be empty: Kafka's readers reject it")
            bound = len(value) + RECORD_OVERHEAD_MAX
            if self._bound + bound > self._batch_bytes:
                self._check_fits(value)
                self._put_values()
            if not self._values:
                self._begun_ms = self.timestamp_ms
            self._values.append(value)
            self._bound += bound

    def flush(self) -> None:
        """Write the batch that is not full yet."""
        self._put_values()

    def put_batch(self, batch: Batch) -> None:
        """Add a batch as it is; it must continue the file. Raises: InvariantError, if it does not."""
        ensure(not self.frozen and not self._values, "a batch is put between batches")
        ensure(
            batch.base_offset == self.next_offset and batch.epoch == self.epoch,
            f"{batch} does not continue a snapshot of epoch {self.epoch} at {self.next_offset}",
        )
        self._put(batch)

    def freeze(self) -> None:
        """Write the last batch, and the footer. Nothing can be appended any more."""
        ensure(not self.frozen, "the snapshot is frozen already")
        self._put_values()
        self._put_control([SnapshotFooterRecord()])
        self.frozen = True

    def _check_fits(self, value: bytes) -> None:
        size = HEADER_SIZE + record_size(offset_delta=0, value_size=len(value))
        if size > self._batch_max_bytes:
            raise RecordTooLargeError(
                f"a value of {len(value)} bytes makes a batch of {size}, the limit is {self._batch_max_bytes}"
            )

    def _put_values(self) -> None:
        if self._values:
            self._put(
                encode_batch(
                    self._values,
                    timestamp_ms=self._begun_ms,
                    base_offset=self.next_offset,
                    epoch=self.epoch,
                    codec=self._codec,
                )
            )
            self._values = []
            self._bound = HEADER_SIZE

    def _put_control(self, records: Sequence[ControlRecord]) -> None:
        self._put(
            encode_control_batch(
                records, timestamp_ms=self.timestamp_ms, base_offset=self.next_offset, epoch=self.epoch
            )
        )

    def _put(self, batch: Batch) -> None:
        self._write(batch.data)
        self.next_offset = batch.end_offset
        self.size += batch.size


class Source(Protocol):
    """Bytes that can be read at any position; a stored snapshot is one."""

    @property
    def size(self) -> int:
        """Length in bytes."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; shorter only at the end."""
        ...

    def close(self) -> None:
        """Release what stands behind it."""
        ...


class StreamSource:
    """A binary stream that can seek, as a source: an open file, or `io.BytesIO`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size = stream.seek(0, 2)

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        self._stream.seek(position)
        return self._stream.read(size)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


def decoded_controls(batch: Batch, position: int) -> list[ControlRecord]:
    """Return the records of a control batch. Raises: CorruptBatchError, also for a batch of data."""
    if not batch.is_control:
        raise CorruptBatchError("a snapshot begins with its header, this one with data", position=position)
    try:
        return [record for _, record in decode_control_batch(batch)]
    except KraftError as error:
        raise CorruptBatchError(f"the control batch at {position}: {error}", position=position) from error


def check_header(records: Sequence[ControlRecord]) -> SnapshotHeaderRecord:
    """Return the header that these records begin with. Raises: CorruptBatchError for anything else among them."""
    first = records[0]
    if not isinstance(first, SnapshotHeaderRecord):
        raise CorruptBatchError(f"a snapshot begins with its header, this one with {first}", position=0)
    for record in records[1:]:
        if not isinstance(record, KRaftVersionRecord | VotersRecord):
            raise CorruptBatchError(f"the header of the snapshot holds {record}", position=0)
        try:  # a replica that has installed it could not start any more, or would not follow its quorum's rules
            check_voters(record) if isinstance(record, VotersRecord) else check_kraft_version(record)
        except KraftError as error:
            raise CorruptBatchError(f"the header of the snapshot: {error}", position=0) from error
    return first


def check_footer(records: Sequence[ControlRecord], position: int) -> None:
    """Check that these records are a footer. Raises: CorruptBatchError."""
    if len(records) != 1 or not isinstance(records[0], SnapshotFooterRecord):
        raise CorruptBatchError(f"control records amid the snapshot are not its footer: {records}", position=position)


class SnapshotReader:
    """Reads one snapshot batch by batch and checks everything: CRCs, offsets, epoch, header, footer, end.

    The header is read at once: `header`, `kraft_version`, `voters` and `epoch` come from it. `epoch`, where given, is
    the one that the snapshot's name says. The reader owns the source: it closes it with itself, and where it cannot be
    made. Raises: CorruptBatchError with the position, here and while iterating.
    """

    def __init__(
        self, source: Source, *, epoch: int | None = None, batch_max_bytes: int = READ_BATCH_MAX_BYTES
    ) -> None:
        self._source = source
        self._batch_max_bytes = batch_max_bytes
        self._window: tuple[int, bytes] = (0, b"")
        try:
            self._read_header(epoch)
        except BaseException:
            source.close()
            raise

    def _read_header(self, epoch: int | None) -> None:
        first = self._read_batch(0)
        self.epoch = first.epoch if epoch is None else epoch
        self._check_place(first, 0, 0)
        records = decoded_controls(first, 0)
        self.header: SnapshotHeaderRecord = check_header(records)
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        for record in records[1:]:
            self._take_header(record)
        self._data_start = first.size
        self._data_offset = first.end_offset

    @property
    def size(self) -> int:
        """Length of the snapshot in bytes."""
        return self._source.size

    def batches(self) -> Iterator[Batch]:
        """Yield the data batches, each checked; the last step checks the footer and the end. May be called again.

        A caller that needs the whole snapshot must finish: before the footer is seen, something may be missing.
        """
        position, offset = self._data_start, self._data_offset
        while True:
            if position >= self._source.size:
                raise CorruptBatchError(f"the snapshot ends at {position} without its footer", position=position)
            batch = self._read_batch(position)
            self._check_place(batch, position, offset)
            if batch.is_control:
                self._check_footer(batch, position)
                return
            yield batch
            position += batch.size
            offset = batch.end_offset

    def verify(self) -> int:
        """Read everything, values included; return the number of data records. Raises: CorruptBatchError."""
        return sum(len(batch.values()) for batch in self.batches())

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def __enter__(self) -> SnapshotReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_header(self, record: ControlRecord) -> None:
        if isinstance(record, KRaftVersionRecord):
            self.kraft_version = record.kraft_version
        elif isinstance(record, VotersRecord):
            self.voters = record

    def _check_footer(self, batch: Batch, position: int) -> None:
        check_footer(decoded_controls(batch, position), position)
        end = position + batch.size
        if end != self._source.size:
            raise CorruptBatchError(f"{self._source.size - end} bytes follow the footer", position=end)

    def _check_place(self, batch: Batch, position: int, offset: int) -> None:
        if batch.base_offset != offset or batch.epoch != self.epoch:
            raise CorruptBatchError(
                f"the batch at {position} has base offset {batch.base_offset} and epoch {batch.epoch}, "
                f"expected are {offset} and {self.epoch}",
                position=position,
            )

    def _read_batch(self, position: int) -> Batch:
        size = batch_size(self._read(position, LENGTH_PREFIX_SIZE))
        if not HEADER_SIZE <= size <= self._batch_max_bytes:
            raise CorruptBatchError(
                f"the batch at {position} claims {size} bytes, possible are {HEADER_SIZE} to {self._batch_max_bytes}",
                position=position,
            )
        batch = read_batch(self._read(position, size), origin=position)
        check_kraft_header(batch)
        return batch

    def _read(self, position: int, size: int) -> memoryview:
        """Return `size` bytes from `position`, out of a window that moves on by steps of 1 MiB or more."""
        start, window = self._window
        if not start <= position <= position + size <= start + len(window):
            window = self._source.read_at(position, max(size, _WINDOW))
            start = position
            self._window = (start, window)
        piece = memoryview(window)[position - start : position - start + size]
        if len(piece) < size:
            raise CorruptBatchError(
                f"the snapshot ends at {self._source.size}, within the batch at {position}", position=position
            )
        return piece
