"""`kraftlib-reserve.bin`: disk space that is given up when the disk is full, so that voting goes on.

A full disk must not cost a vote: an election that cannot be written stops the replica, and a quorum whose disks fill up
together would stop for good. So some space is taken while there is plenty, and given back to the file system in the one
moment in which a write finds none. It is taken again when there is twice as much.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from kraftlib.errors import StorageError
from kraftlib.storage import files, names

logger: Final = logging.getLogger(__name__)

RESERVE_BYTES: Final = 8 << 20

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")


class NoSpaceError(StorageError):
    """The disk is full, and the write is put off: nothing has changed."""


def is_full(error: BaseException) -> bool:
    """Whether this error, or its cause, says that the disk is full."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return True
        cause = cause.__cause__
    return False


def free_bytes(directory: Path) -> int:
    """Return how much may still be written to the file system of a directory."""
    with files.storage_errors("look at the space of", directory):
        found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


@contextmanager
def left_out_if_full(what: str) -> Iterator[None]:
    """Let the block, which writes a cache, be left out on a full disk: its remaining space is for votes and records."""
    try:
        yield
    except StorageError as error:
        if not is_full(error):
            raise
        logger.warning("the disk is full, so %s: %s", what, error)


class Reserve:
    """The reserve file of one directory. 0 bytes: none is kept. For any thread.

    The loop gives it back in an append, a flush takes it again, and so does the look of each second: one at a time.
    """

    def __init__(self, directory: Path, *, size: int = RESERVE_BYTES, file_mode: int = files.FILE_MODE) -> None:
        self._directory: Final = directory
        self._path: Final = directory / names.RESERVE
        self.size: Final = size
        self.is_taken = False
        """Whether the space is known to be there."""
        self._file_mode: Final = file_mode
        self._lock: Final = threading.Lock()
        self._times_released = 0
        self.is_spent = False
        """Whether it was given back in this life, and not taken again."""

    def restore(self) -> bool:
        """Take the space, if it is not taken and there is twice as much; return whether it is."""
        with self._lock:
            self.is_taken = self.size > 0 and (self._holds_space() or self._take())
            self.is_spent &= not self.is_taken
            return self.is_taken

    def _holds_space(self) -> bool:
        return self._path.exists() and files.size_of(self._path) == self.size

    def _take(self) -> bool:
        if free_bytes(self._directory) < 2 * self.size:
            return False
        files.remove(self._path)
        try:
            descriptor = files.create(self._path, mode=self._file_mode)  # or there is space, but for no more files
            try:
                os.posix_fallocate(descriptor, 0, self.size)
            finally:
                os.close(descriptor)
        except (OSError, StorageError) as error:
            logger.warning("%s: no %d bytes can be reserved: %s", self._path, self.size, error)
            files.remove(self._path)
            return False
        return True

    def keep_for_others(self) -> None:
        """Refuse what can be put off, once the reserve was given back and cannot be taken again: the space is for votes
        and records. Raises: StorageError of a full disk.
        """
        if self.is_spent and not self.restore():
            spent = OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} apart from the reserve")
            raise files.as_storage_error("write more to", self._directory, spent) from spent

    def release(self) -> bool:
        """Give the space back; return whether there was any."""
        with self._lock:
            self.is_taken = False
            released = files.remove(self._path)
            self._times_released += released
            self.is_spent |= released
        if released:
            logger.warning("%s: the disk is full: %d reserved bytes are given back", self._path, self.size)
        return released

    def spend(self, work: Callable[[], T]) -> T:
        """Do `work`; if the disk is full, once more with the reserve given back. It must be fit to be repeated.

        Another thread that has found the disk full, too, may have given the reserve back since `work` began.
        """
        times_released = self._times_released
        try:
            return work()
        except (OSError, StorageError) as error:
            if not is_full(error) or not (self.release() or self._times_released > times_released):
                raise
        return work()
