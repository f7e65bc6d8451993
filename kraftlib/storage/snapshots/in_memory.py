"""Snapshots of a log in memory."""

from __future__ import annotations

from collections.abc import Callable

from kraftlib.errors import StorageError, ensure
from kraftlib.types import OffsetAndEpoch


class MemorySnapshotSink:
    """A snapshot being written; it reaches its log when frozen."""

    def __init__(self, snapshot_id: OffsetAndEpoch, *, frozen: Callable[[OffsetAndEpoch, bytes], None]) -> None:
        self._snapshot_id = snapshot_id
        self._frozen = frozen
        self._data: bytearray | None = bytearray()
        self._size = 0

    @property
    def size(self) -> int:
        """The number of bytes that were written."""
        return self._size

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes at the end."""
        if self._data is None:
            raise StorageError(f"snapshot {self._snapshot_id} is frozen or dropped and takes no more bytes")
        self._data += data
        self._size = len(self._data)

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` of the written bytes, from `position`."""
        if self._data is None:
            raise StorageError(f"snapshot {self._snapshot_id} is frozen or dropped: open it to read it")
        return bytes(self._data[position : position + size])

    def freeze(self) -> None:
        """Make durable and visible."""
        if self._data is None:
            raise StorageError(f"snapshot {self._snapshot_id} is frozen or dropped already")
        self._frozen(self._snapshot_id, bytes(self._data))
        self._data = None

    def abort(self) -> None:
        """Drop what was written. Does nothing after `freeze`."""
        self._data = None


class MemorySnapshotSource:
    """A stored snapshot, open for reading."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self._data)

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        ensure(position >= 0 and size >= 0, f"cannot read {size} bytes at {position}")
        return self._data[position : position + size]

    def close(self) -> None:
        """Nothing to release."""
