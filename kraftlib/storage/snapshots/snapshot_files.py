"""Snapshots as files: written under a name that is not theirs yet, frozen, then renamed.

    00000000000000000042-0000000003-81263.checkpoint.part    being written; removed at the next start
    00000000000000000042-0000000003.checkpoint               complete, read-only, never changed again

The bytes are durable before the name is, so a snapshot that can be found is whole as far as the disk keeps its word.
Whether what it holds makes sense is for its reader to say.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kraftlib.errors import CorruptBatchError, StorageError, ensure
from kraftlib.storage import files, names
from kraftlib.types import OffsetAndEpoch

_WRITABLE: Final = 0o222

WRITE_OUT_BYTES: Final = 16 * 1024 * 1024
"""After so many the disk begins to write: a sync of all at once would stand before the log's own, and a commit behind
it. Not in small pieces: many commits would wait in place of a few; and none waits longer than so many bytes take."""


def list_snapshots(directory: Path) -> list[OffsetAndEpoch]:
    """Return the ids of the snapshots in a directory, ascending."""
    ids = map(names.parse_checkpoint_name, files.list_names(directory))
    return sorted(snapshot_id for snapshot_id in ids if snapshot_id is not None)


def drop_snapshots_before(
    directory: Path, snapshots: Sequence[OffsetAndEpoch], snapshot_id: OffsetAndEpoch
) -> list[OffsetAndEpoch]:
    """Remove the snapshots that are older than this one; return those that remain."""
    for older in snapshots:
        if older < snapshot_id:
            files.remove(directory / names.checkpoint_name(older))
    return [kept for kept in snapshots if kept >= snapshot_id]


class FileSnapshotSink:
    """A snapshot being written to a `.part` file."""

    def __init__(
        self,
        directory: Path,
        snapshot_id: OffsetAndEpoch,
        *,
        file_mode: int = files.FILE_MODE,
        frozen: Callable[[OffsetAndEpoch], None] | None = None,
        partial_path: Path | None = None,
        exists: bool = False,
        replaces: bool = False,
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        """`frozen` is told the id once the snapshot is durable under its name. `before_write` raises if the remaining
        space of the disk is not for snapshots.

        `partial_path` is where it is written, by default a file of its own; where that `exists`, it is gone on with.
        One that `replaces` takes the place of a snapshot of this id that exists.
        """
        self._path: Final = directory / names.checkpoint_name(snapshot_id)
        # Two attempts at one snapshot must not meet in one file.
        number = int.from_bytes(os.urandom(8), "big") % 10**18
        self._partial_path: Final = partial_path or directory / names.partial_checkpoint_name(snapshot_id, number)
        self._snapshot_id: Final = snapshot_id
        self._mode: Final = file_mode
        self._frozen: Final = frozen
        self._replaces: Final = replaces
        self._before_write: Final = before_write
        self._size = files.size_of(self._partial_path) if exists else 0
        self._written_out = self._size
        self._is_frozen = False
        self._descriptor: int | None = (
            files.open_existing(self._partial_path, files.WRITE)
            if exists
            else files.create(self._partial_path, mode=file_mode)
        )

    @property
    def size(self) -> int:
        """The number of bytes that were written."""
        return self._size

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes at the end. Not durable."""
        descriptor = self._open_descriptor()
        self._before_write()
        with files.storage_errors("write", self._partial_path):
            files.write_at(descriptor, data, self._size)
        self._size += len(data)
        if self._size - self._written_out >= WRITE_OUT_BYTES:
            files.begin_writing_out(descriptor, self._written_out, self._size - self._written_out)
            self._written_out = self._size

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` of the written bytes, from `position`."""
        ensure(position >= 0 and size >= 0, f"cannot read {size} bytes at {position}")
        descriptor = self._open_descriptor()
        with files.storage_errors("read", self._partial_path):
            return files.read_at(descriptor, size, position)

    def cut(self, size: int) -> None:
        """Drop what stands behind `size` bytes: the rest of an earlier life's bytes may be no snapshot."""
        descriptor = self._open_descriptor()
        with files.storage_errors("cut", self._partial_path):
            os.ftruncate(descriptor, size)
        self._size = size

    def freeze(self) -> None:
        """Make durable and read-only, then visible under its name. A snapshot of this id that exists stays as it is,
        unless this one replaces it."""
        descriptor = self._open_descriptor()
        self._descriptor = None
        with files.storage_errors("freeze", self._partial_path):
            try:
                os.fchmod(descriptor, self._mode & ~_WRITABLE)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        if self._path.exists() and not self._replaces:
            files.remove(self._partial_path)
        else:
            files.rename(self._partial_path, self._path)
        self._is_frozen = True
        files.sync_directory(self._path.parent)
        if self._frozen is not None:
            self._frozen(self._snapshot_id)

    def abort(self) -> None:
        """Drop what was written. Does nothing after `freeze`."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)
        if not self._is_frozen:
            files.remove(self._partial_path)

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise StorageError(f"{self._partial_path} is frozen or dropped already", path=self._partial_path)
        return self._descriptor


class FileSnapshotSource:
    """A stored snapshot, open for reading; it can be read to the end even if it is deleted meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._descriptor: int | None = files.open_existing(path)
        self._size: Final = os.fstat(self._descriptor).st_size

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._size

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; shorter only at the end."""
        ensure(position >= 0 and size >= 0, f"cannot read {size} bytes at {position}")
        if self._descriptor is None:
            raise StorageError(f"{self._path} is closed", path=self._path)
        try:
            return files.read_at(self._descriptor, size, position)
        except OSError as error:
            if error.errno == errno.EIO:  # the disk has lost it: others may have it
                reason = f"{self._path} cannot be read at {position}: {error.strerror}"
                raise CorruptBatchError(reason, path=self._path, position=position) from error
            raise files.as_storage_error("read", self._path, error) from error

    def close(self) -> None:
        """Release the file. Calling it twice is allowed."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)
