"""Incremental snapshots: the changes since a snapshot, key by key. Beyond Kafka, whose followers never see one.

    header batch     control: SnapshotHeader; KRaftVersion and Voters where kraft.version >= 1; all as of its end
    manifest batch   one data record without key; its value is an IncrementManifest: version, id of the base
    data batches     key -> value of the snapshot, or no value where the key is gone; keys ascend over the whole file
    footer batch     control: SnapshotFooter, and then nothing more

The file name says what it leads to: `<end offset, 20 digits>-<epoch, 10 digits>.increment`. Batches are those of a
checkpoint: base offsets count from 0, every epoch is that of the name, every timestamp that of the last record that is
covered. So equal changes make equal bytes, and code that reads a batch can read an increment. The base is a checkpoint
or another increment; a checkpoint with the increments that lead on from it, in order, is a **chain**.

For a chain to be merged in one pass, its checkpoint must hold its values in the order of their keys, too, each key
once. A key is whatever the application says it is; where values are sorted by type, it begins with the type
(`kraftlib.storage.compaction.typed_key`).

A reader that does not know the version refuses the file: half a change would be a wrong state.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Final

import attrs

from kraftlib.codec.declared import Message, int16, int32, int64, message, read, write
from kraftlib.errors import ConfigError, CorruptBatchError, KraftError, RecordTooLargeError
from kraftlib.records.batch import HEADER_SIZE, assemble
from kraftlib.records.control_messages import SnapshotHeaderRecord, VotersRecord
from kraftlib.records.record import Record, encode_block
from kraftlib.records.snapshot import BATCH_MAX_BYTES, SnapshotReader, SnapshotWriter, Source
from kraftlib.types import OffsetAndEpoch

VERSION: Final = 1
BATCH_BYTES: Final = 32 * 1024
RECORD_OVERHEAD: Final = 24
"""Maximum size of a record without its key and value."""

Change = tuple[bytes, bytes | None]
"""A key and its new value; None: the key is gone."""


@message(kind="data", versions="1", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class IncrementManifest(Message):
    """The base of an increment."""

    version: int = int16("1+", default=VERSION)
    base_end_offset: int = int64("1+")
    base_epoch: int = int32("1+")


class IncrementWriter:
    """Writes one increment through `put`: header and manifest at once, then changes, and the footer when frozen."""

    def __init__(
        self,
        put: Callable[[bytes | memoryview], object],
        *,
        base: OffsetAndEpoch,
        epoch: int,
        last_contained_log_timestamp: int,
        kraft_version: int = 0,
        voters: VotersRecord | None = None,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._frame = SnapshotWriter(
            put,
            epoch=epoch,
            last_contained_log_timestamp=last_contained_log_timestamp,
            kraft_version=kraft_version,
            voters=voters,
        )
        self._batch_bytes = batch_bytes
        self._changes: list[Change] = []
        self._bound = HEADER_SIZE
        self._last_key: bytes | None = None
        self.count = 0
        """The number of changes."""
        manifest = IncrementManifest(base_end_offset=base.offset, base_epoch=base.epoch)
        self._frame.append([write(manifest, VERSION)])
        self._frame.flush()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._frame.size

    def append(self, changes: Iterable[Change]) -> None:
        """Add changes, in ascending order of their keys, each key once.

        Raises: ConfigError for a key out of order or an empty value; RecordTooLargeError for a value that no batch can
        hold.
        """
        for key, value in changes:
            if self._last_key is not None and key <= self._last_key:
                raise ConfigError(f"the key {key[:40]!r} comes after {self._last_key[:40]!r}: keys must ascend")
            if value is not None and not value:
                raise ConfigError(f"the value of {key[:40]!r} is empty; None says that it is gone")
            bound = len(key) + len(value or b"") + RECORD_OVERHEAD
            if HEADER_SIZE + bound > BATCH_MAX_BYTES:
                raise RecordTooLargeError(f"a change of {bound} bytes makes no batch, the limit is {BATCH_MAX_BYTES}")
            if self._changes and self._bound + bound > self._batch_bytes:
                self._put()
            self._changes.append((key, value))
            self._bound += bound
            self._last_key = key
            self.count += 1

    def freeze(self) -> None:
        """Write what is left, and the footer."""
        self._put()
        self._frame.freeze()

    def _put(self) -> None:
        if self._changes:
            base, time = self._frame.next_offset, self._frame.timestamp_ms
            records = [Record(base + at, time, key, value, ()) for at, (key, value) in enumerate(self._changes)]
            block = encode_block(records, base_offset=base, base_timestamp=time)
            self._frame.put_batch(assemble([block], len(records), 0, time, time, base, self._frame.epoch))
            self._changes = []
            self._bound = HEADER_SIZE


class IncrementReader:
    """Reads one increment batch by batch and believes nothing, as `SnapshotReader` does, and owns its source as it.

    Raises: CorruptBatchError with the position, here and while iterating; ConfigError for a version that is not known.
    """

    def __init__(self, source: Source, *, epoch: int | None = None) -> None:
        self._frame = SnapshotReader(source, epoch=epoch)
        try:
            self.manifest = self._read_manifest()
        except BaseException:
            source.close()
            raise

    @property
    def base(self) -> OffsetAndEpoch:
        """Id of the snapshot that it is a change of."""
        return OffsetAndEpoch(offset=self.manifest.base_end_offset, epoch=self.manifest.base_epoch)

    @property
    def header(self) -> SnapshotHeaderRecord:
        """Time of the last record that it covers."""
        return self._frame.header

    @property
    def epoch(self) -> int:
        """Epoch of every batch."""
        return self._frame.epoch

    @property
    def kraft_version(self) -> int:
        """The kraft.version at its end."""
        return self._frame.kraft_version

    @property
    def voters(self) -> VotersRecord | None:
        """The voters at its end."""
        return self._frame.voters

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._frame.size

    def changes(self) -> Iterator[Change]:
        """Yield the changes in the order of their keys; the last step checks the footer. May be called again."""
        batches = self._frame.batches()
        next(batches)  # the manifest
        last: bytes | None = None
        for batch in batches:
            for record in batch.records():
                key = record.key
                if key is None or record.value == b"" or (last is not None and key <= last):
                    raise CorruptBatchError(
                        f"record {record.offset} of the increment has the key {key!r} after {last!r}, or an empty value"
                    )
                yield key, record.value
                last = key

    def verify(self) -> int:
        """Read it all; return the number of changes. Raises: CorruptBatchError."""
        return sum(1 for _ in self.changes())

    def close(self) -> None:
        """Close the source."""
        self._frame.close()

    def __enter__(self) -> IncrementReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_manifest(self) -> IncrementManifest:
        batch = next(self._frame.batches(), None)
        records = list(batch.records()) if batch is not None else []
        if len(records) != 1 or records[0].key is not None or not records[0].value:
            raise CorruptBatchError(f"an increment begins with its manifest, this one with {batch}")
        value = records[0].value
        version = int.from_bytes(value[:2], "big", signed=True)
        if version != VERSION:
            raise ConfigError(
                f"the increment has version {version}, known is {VERSION}: read it with the release that wrote it, or "
                "use the last full checkpoint"
            )
        try:
            return read(IncrementManifest, value, VERSION, expect_end=True)
        except KraftError as error:
            raise CorruptBatchError(f"the manifest of the increment: {error}") from error


def check_chain(base: OffsetAndEpoch, increments: Iterable[tuple[OffsetAndEpoch, OffsetAndEpoch]]) -> OffsetAndEpoch:
    """Return where a chain leads: pairs of an increment's id and its base, in order. Raises: ConfigError for a gap."""
    at = base
    for increment, its_base in increments:
        if its_base != at or increment.offset <= at.offset:
            raise ConfigError(f"increment {increment} is a change of {its_base} and does not lead on from {at}")
        at = increment
    return at


def keyed(values: Iterable[bytes], key_of: Callable[[bytes], bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the values of a checkpoint with their keys. Raises: ConfigError, if the keys do not ascend."""
    last: bytes | None = None
    for value in values:
        key = key_of(value)
        if last is not None and key <= last:
            raise ConfigError(
                f"the checkpoint has the key {key[:40]!r} after {last[:40]!r}: only one whose keys ascend can be the "
                "base of increments"
            )
        yield key, value
        last = key


def merge(base: Iterable[tuple[bytes, bytes]], *increments: Iterable[Change]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the state behind a chain: per key the latest value, and nothing for keys that are gone. Keys ascend.

    One pass, with one record of each in memory. All keys must ascend, as `keyed` and `IncrementReader.changes` have it.
    """
    for key, value in merge_changes(base, *increments):
        if value is not None:
            yield key, value


def merge_changes(*changes: Iterable[Change]) -> Iterator[Change]:
    """Yield per key the change of the last of these streams that has it, tombstones included. Keys ascend."""
    streams = [_ranked(rank, stream) for rank, stream in enumerate(changes)]
    held: Change | None = None
    for key, _, value in heapq.merge(*streams, key=itemgetter(0, 1)):
        if held is not None and key != held[0]:
            yield held
        held = (key, value)
    if held is not None:
        yield held


def _ranked(rank: int, changes: Iterable[Change]) -> Iterator[tuple[bytes, int, bytes | None]]:
    for key, value in changes:
        yield key, rank, value
