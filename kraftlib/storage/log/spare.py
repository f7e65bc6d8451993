"""`kraftlib-spare.bin`: the next segment, full of zeros, made before it is wanted.

A flush into a file that grows has two things to make durable, the bytes and where they are: the new size, and newly
allocated blocks. Where zeros were written and synced beforehand, only the bytes are left. So with `segment_zero_fill` a
file of zeros is made in the background, under a name that no tool takes for a segment, and is renamed when the log goes
on in a new one. It is never filled while it is a segment: the two threads never meet in it.

The segment that grows then ends in zeros, while the replica runs and after it was killed. They are cut off when it is
full, before the next one is synced, at a clean end, and by every start: zeros are no batch. Kafka cuts them, too, when
it starts; its dump tool refuses a segment that ends in them.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path
from typing import Final

from kraftlib.errors import StorageError
from kraftlib.storage import files, names

logger: Final = logging.getLogger(__name__)

_PIECE: Final = bytes(1 << 20)


class Spare:
    """The spare segment of one directory, of `size` bytes; 0: there is none.

    `prepare` and `drop` are for a thread in the background, `take` for the loop.
    """

    def __init__(self, directory: Path, *, size: int, file_mode: int) -> None:
        self._path: Final = directory / names.SPARE
        self._temporary: Final = directory / (names.SPARE + ".tmp")
        self._file_mode: Final = file_mode
        self._lock: Final = threading.Lock()
        self._descriptor: int | None = None
        self.size: Final = size

    def prepare(self) -> None:
        """Make the file, unless it is there or the disk refuses: then the log does without."""
        if self.size == 0 or self._descriptor is not None:
            return
        descriptor = -1
        try:
            files.remove(self._temporary)
            descriptor = files.create(self._temporary, mode=self._file_mode)
            with files.storage_errors("fill", self._temporary):
                for position in range(0, self.size, len(_PIECE)):
                    files.write_at(descriptor, _PIECE[: self.size - position], position)
                os.fsync(descriptor)
            with self._lock:
                files.rename(self._temporary, self._path)
                self._descriptor = descriptor
        except StorageError as error:
            logger.warning("%s: no spare segment is made: %s", self._path, error)
            if descriptor >= 0:
                os.close(descriptor)
                files.remove(self._temporary)

    def take(self, path: Path) -> int | None:
        """Let the file be the segment at `path`, and return it open; None, if there is none.

        The name is durable once the directory is synced. Raises: StorageError.
        """
        with self._lock:
            descriptor = self._descriptor
            if descriptor is None:
                return None
            if path.exists():
                raise StorageError(f"cannot create {path}: File exists", path=path)
            files.rename(self._path, path)
            self._descriptor = None
            return descriptor

    def drop(self) -> None:
        """Give the space back."""
        with self._lock:
            if self._descriptor is not None:
                descriptor, self._descriptor = self._descriptor, None
                os.close(descriptor)
                files.remove(self._path)


def only_zeros_follow(descriptor: int, path: Path, position: int, end: int) -> bool:
    """Whether there are bytes from `position` on, and all of them are zero. Bytes that the disk has lost do not count
    as zero."""
    at = position
    while at < end:
        try:
            data = files.read_at(descriptor, min(len(_PIECE), end - at), at)
        except OSError as error:
            if error.errno == errno.EIO:
                return False
            raise files.as_storage_error("read", path, error) from error
        if not data or data.count(0) != len(data):
            return False
        at += len(data)
    return at > position
