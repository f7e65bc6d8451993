"""Batches and snapshots for the tests of this directory, and a chain of segments to put them into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.storage.damage.recovery import recover
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.storage.log.chain import SegmentChain
from kraftlib.storage.log.open_files import SegmentSettings
from kraftlib.storage.log.spare import Spare
from kraftlib.storage.reserve import Reserve
from kraftlib.testing.log_contract import store_snapshot
from kraftlib.types import OffsetAndEpoch

TIMESTAMP = 1_700_000_000_000


def a_batch(base_offset: int, epoch: int = 1, *, records: int = 1, size: int = 20, timestamp: int = TIMESTAMP) -> Batch:
    """Return a batch of `records` values of `size` bytes that tell its offset and epoch."""
    values = [f"{base_offset + n}@{epoch}".encode().ljust(size, b".") for n in range(records)]
    return encode_batch(values, timestamp_ms=timestamp, base_offset=base_offset, epoch=epoch)


def some_batches(*epochs: int, base_offset: int = 0, records: int = 1, size: int = 20) -> list[Batch]:
    """Return one batch per epoch named, back to back."""
    batches: list[Batch] = []
    for epoch in epochs:
        batches.append(a_batch(base_offset, epoch, records=records, size=size))
        base_offset += records
    return batches


def offsets(batches: Iterable[Batch]) -> list[tuple[int, int]]:
    """Return (base offset, epoch) of each."""
    return [(batch.base_offset, batch.epoch) for batch in batches]


def a_chain(directory: Path, *, segment_bytes: int = 1_000, reserve_bytes: int = 0) -> SegmentChain:
    """Return a chain whose segments hold three batches of 200 bytes each."""
    settings = SegmentSettings(
        spare=Spare(directory, size=0, file_mode=0o600),
        segment_bytes=segment_bytes,
        segment_ms=1 << 40,
        file_mode=0o600,
        reserve_bytes=reserve_bytes,
        reserve=Reserve(directory, size=0),
    )
    log = recover(directory, file_mode=0o600)
    return SegmentChain(directory, log.segments, settings, mark=log.mark)


def append(chain: SegmentChain, batches: Sequence[Batch]) -> None:
    for batch in batches:
        chain.append([batch], batch.size)


def snapshot_bytes(snapshot_id: OffsetAndEpoch, *, records: int = 3, size: int = 40) -> bytes:
    """Return a snapshot of some records."""
    parts: list[bytes] = []
    writer = SnapshotWriter(
        lambda data: parts.append(bytes(data)), epoch=snapshot_id.epoch, last_contained_log_timestamp=TIMESTAMP
    )
    writer.append([f"state {number} of {snapshot_id}".encode().ljust(size, b".") for number in range(records)])
    writer.freeze()
    return b"".join(parts)


def store_whole_snapshot(log: ReplicatedLog, offset: int, epoch: int) -> OffsetAndEpoch:
    """Store a snapshot that can be read to its end; return its id."""
    return store_snapshot(log, offset, epoch, snapshot_bytes(OffsetAndEpoch(offset=offset, epoch=epoch)))


def segments(directory: Path) -> list[Path]:
    """Return the files of the log, in order."""
    return sorted(directory.glob("*.log"))
