"""Archives for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kraftlib.archive.directory import ArchiveDirectory, open_archive
from kraftlib.archive.writer import ArchiveWriter
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink
from kraftlib.types import OffsetAndEpoch


def an_archive(root: Path, cluster_id: str = "blue") -> ArchiveDirectory:
    return open_archive(root, cluster_id=cluster_id)


@contextmanager
def a_writer(directory: ArchiveDirectory, *, segment_bytes: int = 1 << 20) -> Iterator[ArchiveWriter]:
    writer = ArchiveWriter(directory, segment_bytes=segment_bytes)
    try:
        yield writer
    finally:
        writer.close()


def log_bytes(directory: ArchiveDirectory) -> bytes:
    """Return all segments, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(directory.partition.glob("*.log")))


def store_checkpoint(
    directory: ArchiveDirectory, offset: int, epoch: int, *, values: Sequence[bytes] = (b"state",)
) -> OffsetAndEpoch:
    """Put a small checkpoint of this id there."""
    checkpoint = OffsetAndEpoch(offset=offset, epoch=epoch)
    sink = FileSnapshotSink(directory.partition, checkpoint)
    snapshot = SnapshotWriter(sink.write, epoch=epoch, last_contained_log_timestamp=1)
    snapshot.append(values)
    snapshot.freeze()
    sink.freeze()
    return checkpoint
