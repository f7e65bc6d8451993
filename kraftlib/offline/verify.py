"""Every file of a replica's directory, read to its end and judged: nothing is changed, nothing is repaired.

A file is `ok`, `damaged` with the place where it is, or worth a `note`: a torn tail that the next start cuts off, a
leftover that it removes, an unknown file. The log is judged as a start would judge it (`kraftlib.offline.verify_log`),
and the records before it must be in a checkpoint. Indexes are caches, so a bad one does no harm; it is reported all the
same, since a disk that lost one file may lose another.

The directory may be in use. Then the end of the log is being written, and an incomplete batch there is no torn tail
yet.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import CorruptBatchError, DirectoryInUseError, KraftError, NotFormattedError, StorageError
from kraftlib.offline.verify_log import Finding, LogVerification, Progress, said
from kraftlib.records.checksum import crc32c
from kraftlib.records.increment import IncrementReader
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.storage import files, names, notes
from kraftlib.storage.election.line import parse_line
from kraftlib.storage.lock import DirectoryLock
from kraftlib.storage.log.epochs import decode_epochs
from kraftlib.storage.meta_properties import read_meta_properties
from kraftlib.storage.notes import NoteError
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import METADATA_TOPIC_ID, uuid_text

SMALL_MAX_BYTES: Final = 1 << 20
PRODUCER_STATE_SIZE: Final = 10

_INDEX_MAX_BYTES: Final = 64 << 20
_SMALL: Final = (
    names.META_PROPERTIES, names.LOCK, names.QUORUM_STATE, names.QUORUM_STATE_MIRROR, names.PARTITION_METADATA,
    names.EPOCH_CHECKPOINT, names.PARTITION_DIRECTORY,
)  # fmt: skip


def total_bytes(directory: Path) -> int:
    """Return how many bytes `verify_directory` will read."""
    return sum(files.size_of(path) for path in _paths(directory) if path.is_file() and not path.is_symlink())


def verify_directory(directory: Path, *, progress: Progress = lambda size: None) -> Iterator[Finding]:
    """Yield a finding for every file of a formatted directory, and for each missing one.

    Raises: NotFormattedError, if it is none; StorageError, if it cannot be read at all.
    """
    if not os.path.lexists(directory / names.META_PROPERTIES):
        raise NotFormattedError(
            f"{directory} has no {names.META_PROPERTIES}: it is no replica's directory", path=directory
        )
    partition = directory / names.PARTITION_DIRECTORY
    in_use = _is_in_use(directory)
    log = LogVerification(partition, in_use=in_use, progress=progress)
    for path in _paths(directory):
        if path.parent == partition and names.parse_segment_name(path.name) is not None:
            yield log.finding(path)
        else:
            found = _finding(path, progress)
            if path == partition / names.SYNC_POINT and found.verdict == "ok":
                verdict, detail = log.said_of_sync_point()
                found = attrs.evolve(found, verdict=verdict, detail=detail)
            if in_use and found.verdict == "damaged" and not os.path.lexists(path):
                found = Finding(path=path, verdict="note", detail="the replica has removed it meanwhile")
            yield found
    if partition.is_dir():
        yield from log.missing()
    else:
        yield Finding(path=partition, verdict="note", detail="there is no log: the replica has never run")


def _finding(path: Path, progress: Progress) -> Finding:
    size = 0
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise files.not_regular(path, stat.S_IFMT(found.st_mode))
        size = found.st_size
        verdict, detail = _judge(path, size)
        progress(size)
    except (KraftError, ValueError, OSError) as error:
        verdict = "damaged" if _is_of_a_replica(path.name) else "note"
        return Finding(
            path=path, verdict=verdict, detail=said(error), position=getattr(error, "position", None), size=size
        )
    return Finding(path=path, verdict=verdict, detail=detail, size=size)


def _is_of_a_replica(name: str) -> bool:
    """Whether a replica reads, or writes, files of this name."""
    return (
        name in _SMALL
        or name.startswith("kraftlib")
        or Path(name).suffix in (".log", ".index", ".timeindex", ".snapshot", ".checkpoint", ".increment")
    )


def _paths(directory: Path) -> list[Path]:
    """Return all that is there, but for the directories that belong there."""
    partition = directory / names.PARTITION_DIRECTORY
    here = [directory / name for name in files.list_names(directory)]
    there = [partition / name for name in files.list_names(partition)] if partition.is_dir() else []
    places = (partition, partition / names.REPAIR_DIRECTORY, partition / names.DAMAGED_DIRECTORY)
    return [path for path in [*here, *there] if path not in places or path.is_symlink() or not path.is_dir()]


def _is_in_use(directory: Path) -> bool:
    if not (directory / names.LOCK).exists():
        return False
    try:
        DirectoryLock.acquire(directory).release()
    except DirectoryInUseError:
        return True
    return False


# One kind of file after the other -----------------------------------------------------------------


def _judge(path: Path, size: int) -> tuple[str, str]:
    """Return verdict and detail for any file but a segment. Raises what is wrong with it."""
    name = path.name
    if name == names.META_PROPERTIES:
        meta = read_meta_properties(path.parent)
        return "ok", f"node {meta.node_id} of cluster {meta.cluster_id}" if meta is not None else ""
    if name == names.BOOTSTRAP_CHECKPOINT or names.parse_checkpoint_name(name) is not None:
        return "ok", _checkpoint(path)
    if names.parse_increment_name(name) is not None:
        return "ok", _increment(path)
    if path.suffix in (".index", ".timeindex"):
        return "ok", _index(path, size)
    if names.parse_producer_state_name(name) is not None:
        return "ok", _producer_state(path)
    if name == names.RESERVE:
        return "ok", "space that is given up when the disk is full"
    if names.is_left_over(name):
        return "note", "left over: the next start removes it"
    if names.is_download(name):
        return "note", "a download that is not complete"
    if name == names.LOCK:
        return "ok", "empty" if size == 0 else f"{size} bytes, which are not read"
    return _small(path)


def _small(path: Path) -> tuple[str, str]:
    """Judge the small text files."""
    data = files.read_file(path, max_bytes=SMALL_MAX_BYTES) or b""
    match path.name:
        case names.PARTITION_METADATA:
            wanted = f"version: 0\ntopic_id: {uuid_text(METADATA_TOPIC_ID)}".split()
            if data.decode("utf-8", "replace").split() != wanted:
                raise StorageError(f"it is of another topic: {data!r}")
            return "ok", "the metadata topic"
        case names.QUORUM_STATE:
            try:
                fields = parse_line(data)
            except NoteError as error:
                raise StorageError(str(error)) from error
            return "ok", f"epoch {fields['leaderEpoch']}" + ("" if b'"crc"' in data else ", written by Kafka")
        case names.EPOCH_CHECKPOINT:
            return "ok", f"{len(decode_epochs(data))} epochs"
        case name if name.startswith("kraftlib") and name.endswith(".json") and name != names.SYNC_POINT:
            notes.parse(data)
            return "ok", "a side file of ours"
        case name if name.startswith("kraftlib") or name == names.QUORUM_STATE_MIRROR:
            return "ok", "a side file of ours, which keeps no data"
        case _:
            return "note", "not a file of a replica"


def _checkpoint(path: Path) -> str:
    snapshot_id = names.parse_checkpoint_name(path.name)
    epoch = 0 if snapshot_id is None else snapshot_id.epoch
    with SnapshotReader(FileSnapshotSource(path), epoch=epoch) as reader:
        return f"{reader.verify()} records"


def _increment(path: Path) -> str:
    snapshot_id = names.parse_increment_name(path.name)
    with IncrementReader(FileSnapshotSource(path), epoch=None if snapshot_id is None else snapshot_id.epoch) as reader:
        return f"{reader.verify()} changes since {reader.base}"


def _producer_state(path: Path) -> str:
    data = files.read_file(path, max_bytes=SMALL_MAX_BYTES) or b""
    if (
        len(data) < PRODUCER_STATE_SIZE
        or data[:2] != b"\x00\x01"
        or crc32c(data[6:]) != int.from_bytes(data[2:6], "big")
    ):
        raise CorruptBatchError("its version or its CRC does not fit", position=0)
    return "no producers" if data[6:10] == bytes(4) else "producers, which a metadata log has none of"


def _index(path: Path, size: int) -> str:
    """Check that entries ascend and point at batches of their segment."""
    width = 8 if path.suffix == ".index" else 12
    if size % width:
        raise CorruptBatchError(f"{size} bytes are no entries of {width}", position=size - size % width)
    data = (files.read_file(path, max_bytes=_INDEX_MAX_BYTES) or b"").rstrip(b"\x00")
    data += bytes(-len(data) % width)
    if width == 12:
        times = [int.from_bytes(data[at : at + 8], "big", signed=True) for at in range(0, len(data), width)]
        fault = next((at for at in range(1, len(times)) if times[at] <= times[at - 1]), None)
        if fault is not None:
            raise CorruptBatchError("its times do not ascend; it is a cache, made again at the next start",
                                    position=fault * width)  # fmt: skip
        return f"{len(times)} entries"
    entries = [
        (
            int.from_bytes(data[at : at + 4], "big", signed=True),
            int.from_bytes(data[at + 4 : at + 8], "big", signed=True),
        )
        for at in range(0, len(data), width)
    ]
    _check_entries(path.with_suffix(".log"), entries)
    return f"{len(entries)} entries"


def _check_entries(segment: Path, entries: list[tuple[int, int]]) -> None:
    base = names.parse_segment_name(segment.name) or 0
    descriptor = files.open_existing(segment)
    try:
        size = os.fstat(descriptor).st_size
        for number, (relative, position) in enumerate(entries):
            head = files.read_at(descriptor, 61, position) if 0 <= position < size else b""
            fits = len(head) == 61 and (
                int.from_bytes(head[:8], "big") + int.from_bytes(head[23:27], "big") == base + relative
            )
            if not fits:
                raise CorruptBatchError(
                    f"entry {number} points at byte {position}, where no batch ends with offset {base + relative}; it"
                    " is a cache, made again at the next start",
                    position=number * 8,
                )
    finally:
        os.close(descriptor)
