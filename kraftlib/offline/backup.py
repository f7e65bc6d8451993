"""Backups: the newest checkpoint, the log behind it, and a manifest that says what they are, in a directory or a tar.

    kraftlib-backup.json      {"version": 1, "cluster_id": ..., "end_offset": ..., "end_epoch": ...,
                              "kraft_version": ..., "created_ms": ...,
                              "files": [{"name": ..., "size": ..., "sha256": ...}, ...]}
    <20>-<10>.checkpoint      the newest one, if there is any
    <20>.log                  segments, Kafka's format; the first may reach back before the checkpoint

It is written under another name (see `scratch`) and renamed when it is durable, so a backup with the right name is
whole. Reading one checks sizes, hashes, every batch, and that checkpoint and log fit together. Restoring makes the
directory of a *new* replica of a *new* cluster: the old one may still be there, and two clusters of one id must never
meet.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError, CorruptBatchError, StorageError
from kraftlib.offline.scratch import BACKUP, PACKED, scratch_in
from kraftlib.records.batch import check_kraft
from kraftlib.records.control import decode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.storage import files, names, notes
from kraftlib.storage.log.segment import batches_in
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource, list_snapshots
from kraftlib.types import Epoch, Offset, OffsetAndEpoch

MANIFEST: Final = "kraftlib-backup.json"
VERSION: Final = 1
MANIFEST_MAX_BYTES: Final = 16 << 20
COPY_BYTES: Final = 1 << 20

Progress = Callable[[int], object]


@attrs.frozen(kw_only=True)
class BackupFile:
    """One file of a backup."""

    name: str
    size: int
    sha256: str


@attrs.frozen(kw_only=True)
class Manifest:
    """The manifest of a backup."""

    cluster_id: str
    end_offset: Offset
    end_epoch: Epoch
    kraft_version: int
    created_ms: int
    """Wall-clock time in ms; the files of a restore are stamped with it, so that all restored replicas write the
    same."""
    files: Sequence[BackupFile]

    @property
    def end(self) -> OffsetAndEpoch:
        """The end of the log."""
        return OffsetAndEpoch(offset=self.end_offset, epoch=self.end_epoch)

    @property
    def size(self) -> int:
        """The sum of the sizes, in bytes."""
        return sum(file.size for file in self.files)

    def to_json(self) -> str:
        """Return the manifest as it is stored."""
        return json.dumps({"version": VERSION, **attrs.asdict(self)}, indent=2)


@attrs.define
class _Content:
    """The combined contents of checkpoint and segments."""

    end_offset: Offset = 0
    epoch: Epoch = 0
    kraft_version: int = 0


def write_backup(
    partition: Path,
    target: Path,
    *,
    cluster_id: str,
    created_ms: int,
    end_offset: Offset | None = None,
    progress: Progress = lambda size: None,
) -> Manifest:
    """Copy checkpoint and log of a replica that does not run to `target`, which must not exist.

    With a name that ends in `.tar` it is one file. `end_offset`, if given, is where the log is cut: the high watermark,
    where that is known. Raises: ConfigError, StorageError, CorruptBatchError; nothing is at `target` then.
    """
    if target.exists():
        raise ConfigError(f"{target} exists: name a path that does not exist yet")
    with scratch_in(target.parent) as scratch:
        work = scratch / BACKUP
        work.mkdir(mode=0o700)
        snapshots = [snapshot for snapshot in list_snapshots(partition) if snapshot.offset > 0]
        newest = snapshots[-1] if snapshots else None
        if newest is not None and end_offset is not None and newest.offset > end_offset:
            raise ConfigError(f"end_offset={end_offset} lies before the newest checkpoint, {newest}")
        for name in _wanted(partition, newest):
            _copy(partition / name, work / name, progress)
        if end_offset is not None:
            _cut(work, end_offset)
        content = _content(work, progress)
        manifest = Manifest(
            cluster_id=cluster_id,
            end_offset=content.end_offset,
            end_epoch=content.epoch,
            kraft_version=content.kraft_version,
            created_ms=created_ms,
            files=[_described(path) for path in sorted(work.iterdir())],
        )
        files.replace_file(work / MANIFEST, manifest.to_json().encode(), mode=files.FILE_MODE)
        if target.suffix == ".tar":
            _pack(work, target)
        else:
            files.rename(work, target)
            files.sync_directory(target.parent)
    return manifest


def _wanted(partition: Path, newest: OffsetAndEpoch | None) -> list[str]:
    bases = sorted(base for base in map(names.parse_segment_name, files.list_names(partition)) if base is not None)
    start = 0 if newest is None else newest.offset
    # A segment is needed if the next one begins beyond the end of the checkpoint.
    needed = [base for base, after in zip_longest(bases, bases[1:]) if after is None or after > start]
    return [*([names.checkpoint_name(newest)] if newest else []), *map(names.segment_name, needed)]


def _copy(source: Path, target: Path, progress: Progress) -> None:
    opened = os.fdopen(files.open_existing(source), "rb")
    with files.storage_errors("copy", source), opened as reader, target.open("xb") as writer:
        os.fchmod(writer.fileno(), files.FILE_MODE)
        while data := reader.read(COPY_BYTES):
            writer.write(data)
            progress(len(data))
        writer.flush()
        os.fsync(writer.fileno())


def _cut(work: Path, end_offset: Offset) -> None:
    """Cut the copied log behind the last batch that ends by `end_offset`."""
    for path in sorted(work.glob("*.log"), reverse=True):
        if (names.parse_segment_name(path.name) or 0) >= end_offset and len(list(work.glob("*.log"))) > 1:
            path.unlink()
            continue
        position = 0
        descriptor = files.open_existing(path, files.WRITE)
        try:
            for batch in batches_in(descriptor, path, 0, os.fstat(descriptor).st_size):
                if batch.end_offset > end_offset:
                    break
                position += batch.size
            os.ftruncate(descriptor, position)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return


def _content(work: Path, progress: Progress) -> _Content:
    """Read all files and return what they hold. Raises: CorruptBatchError, if they do not fit together."""
    content = _Content()
    snapshots = list_snapshots(work)
    if snapshots:
        newest = snapshots[-1]
        with SnapshotReader(FileSnapshotSource(work / names.checkpoint_name(newest)), epoch=newest.epoch) as reader:
            reader.verify()
            content = _Content(newest.offset, newest.epoch, reader.kraft_version)
    start = content.end_offset
    end: Offset | None = None
    for path in sorted(work.glob("*.log")):
        base = names.parse_segment_name(path.name) or 0
        before = start if end is None else end
        if base > before or (end is not None and base != end):
            raise CorruptBatchError(
                f"{path} begins at {base}, what stands before ends at {before}", path=path, position=0
            )
        end = base
        descriptor = files.open_existing(path)
        try:
            for batch in batches_in(descriptor, path, 0, os.fstat(descriptor).st_size):
                if batch.base_offset != end:
                    raise CorruptBatchError(f"{path}: {batch!r} does not continue a log that ends at {end}", path=path)
                check_kraft(batch)
                end = batch.end_offset
                if batch.end_offset > start:
                    content.epoch = max(content.epoch, batch.epoch)
                    if batch.is_control:
                        _take_controls(content, batch)
                progress(batch.size)
        finally:
            os.close(descriptor)
    content.end_offset = max(start, end or 0)
    return content


def _take_controls(content: _Content, batch: Any) -> None:
    for _, record in decode_control_batch(batch):
        if isinstance(record, KRaftVersionRecord):
            content.kraft_version = record.kraft_version


def _described(path: Path) -> BackupFile:
    with os.fdopen(files.open_existing(path), "rb") as file:
        return BackupFile(
            name=path.name, size=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest()
        )


def _pack(work: Path, target: Path) -> None:
    packed = work.parent / PACKED
    with files.storage_errors("write", packed), tarfile.open(packed, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(work.iterdir()):
            tar.add(path, arcname=path.name)
    descriptor = files.open_existing(packed)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    files.rename_new(packed, target)
    files.sync_directory(target.parent)


@contextmanager
def opened_backup(source: Path) -> Iterator[Path]:
    """Yield the directory of a backup; one that is packed is unpacked beside the system's temporary files.

    A checkpoint is yielded as it is: `manifest_of` says what it comes to.
    """
    if source.is_dir() or (source.is_file() and names.parse_checkpoint_name(source.name) is not None):
        yield source
        return
    if not tarfile.is_tarfile(source):
        raise ConfigError(
            f"{source} is no backup: neither a directory nor a tar file, nor named <end offset>-<epoch>.checkpoint"
        )
    with tempfile.TemporaryDirectory(prefix="kraftlib-backup-") as temporary:
        with files.storage_errors(f"unpack {source} into", Path(temporary)):
            try:
                _unpack(source, Path(temporary))
            except tarfile.TarError as error:
                raise StorageError(f"{source} is damaged, or was cut short: {error}", path=source) from error
        if not (Path(temporary) / MANIFEST).exists():
            raise StorageError(f"{source} is damaged, or was cut short: it has no {MANIFEST}", path=source)
        yield Path(temporary)


def _unpack(source: Path, target: Path) -> None:
    with tarfile.open(source) as tar:
        for member in tar:
            if not member.isfile() or not _is_backup_name(member.name):
                raise StorageError(f"{source} has a member {member.name!r}, which no backup has", path=source)
            data = tar.extractfile(member)
            if data is None:
                raise StorageError(f"{source}: {member.name} cannot be read", path=source)
            with data, (target / member.name).open("xb") as out:
                shutil.copyfileobj(data, out, COPY_BYTES)


def _is_backup_name(name: str) -> bool:
    is_data = names.parse_checkpoint_name(name) is not None or names.parse_segment_name(name) is not None
    return is_data or name == MANIFEST


def read_manifest(directory: Path) -> Manifest:
    """Return what a backup says of itself. Raises: StorageError, ConfigError for a newer version."""
    path = directory / MANIFEST
    data = files.read_file(path, max_bytes=MANIFEST_MAX_BYTES)
    if data is None:
        raise StorageError(f"{directory} is no backup: it has no {MANIFEST}", path=directory)
    try:
        document = notes.parse(data)
        version = document["version"]
        if version != VERSION:
            raise ConfigError(f"{path} has version {version}, known is {VERSION}: use the release that wrote it")
        listed = [
            BackupFile(name=str(f["name"]), size=int(f["size"]), sha256=str(f["sha256"])) for f in document["files"]
        ]
        if not all(_is_backup_name(file.name) for file in listed):
            raise ValueError("it names files that no backup has")
        return Manifest(
            cluster_id=str(document["cluster_id"]),
            end_offset=int(document["end_offset"]),
            end_epoch=int(document["end_epoch"]),
            kraft_version=int(document["kraft_version"]),
            created_ms=int(document["created_ms"]),
            files=listed,
        )
    except ConfigError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is damaged: {error!r}", path=path) from error


def manifest_of(checkpoint: Path) -> Manifest:
    """Return what a backup of this checkpoint alone would say, of no cluster; it is verified.

    Raises: ConfigError, if its name says no id; CorruptBatchError.
    """
    snapshot_id = names.parse_checkpoint_name(checkpoint.name)
    if snapshot_id is None:
        raise ConfigError(f"{checkpoint} is not named as a checkpoint is, <end offset>-<epoch>.checkpoint")
    with SnapshotReader(FileSnapshotSource(checkpoint), epoch=snapshot_id.epoch) as reader:
        reader.verify()
        kraft_version, timestamp_ms = reader.kraft_version, reader.header.last_contained_log_timestamp
    return Manifest(
        cluster_id="",
        end_offset=snapshot_id.offset,
        end_epoch=snapshot_id.epoch,
        kraft_version=kraft_version,
        created_ms=timestamp_ms,
        files=[_described(checkpoint)],
    )


def verify_backup(directory: Path, *, progress: Progress = lambda size: None) -> Manifest:
    """Check sizes, hashes, batches, and the end that the manifest names. Raises: StorageError, ConfigError."""
    manifest = read_manifest(directory)
    for file in manifest.files:
        path = directory / file.name
        if not path.is_file() or _described(path) != file:
            raise StorageError(
                f"{path} is not what the manifest says: size or hash differ, or it is missing", path=path
            )
    content = _content(directory, progress)
    if (content.end_offset, content.epoch) != (manifest.end_offset, manifest.end_epoch):
        raise StorageError(f"{directory} ends at {content}, its manifest says {manifest.end}", path=directory)
    return manifest


def copy_into(directory: Path, manifest: Manifest, partition: Path, *, file_mode: int, progress: Progress) -> None:
    """Copy the files of a verified backup into the partition's directory of a replica that was just formatted."""
    for file in manifest.files:
        target = partition / file.name
        _copy(directory / file.name, target, progress)
        is_checkpoint = names.parse_checkpoint_name(file.name) is not None
        target.chmod(file_mode & ~0o222 if is_checkpoint else file_mode)
    files.sync_directory(partition)
