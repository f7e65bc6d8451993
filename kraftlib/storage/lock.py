"""One owner per directory: an open-file-description lock on `.lock`.

A JVM locks with `fcntl` records, which such a lock conflicts with in both directions; `flock` it would not see, and a
plain `lockf` is lost as soon as any descriptor of the file is closed in this process. Kafka removes `.lock` when it
stops cleanly, so after locking the path is looked at again: if it names another file by now, or none, another process
may lock that one. A forked child has no part in the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kraftlib import forks
from kraftlib.errors import DirectoryInUseError, StorageError
from kraftlib.storage import files
from kraftlib.storage.files import FILE_MODE, WRITE, storage_errors
from kraftlib.storage.names import LOCK

# struct flock: type, whence, start, length (0: to the end), process id.
_FLOCK: Final = struct.Struct("hhqqi4x")
_ATTEMPTS: Final = 100


class DirectoryLock:
    """The right to use a directory, held from `acquire` to `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path: Final = path
        self._descriptor: int | None = descriptor
        forks.keep_from_children(descriptor)

    @classmethod
    def acquire(cls, directory: Path, *, mode: int = FILE_MODE) -> DirectoryLock:
        """Lock `directory`. Raises: DirectoryInUseError that names the directory and, where known, the holder."""
        path = directory / LOCK
        with storage_errors("lock", path):
            for _ in range(_ATTEMPTS):
                with ExitStack() as undo:
                    descriptor = files.open_regular(path, WRITE | os.O_CREAT, mode)
                    undo.callback(os.close, descriptor)
                    is_locked = _lock(descriptor)
                    if _is_at(path, descriptor):
                        if not is_locked:
                            raise _in_use(directory, path, descriptor)
                        undo.pop_all()
                        return cls(path, descriptor)
        raise StorageError(f"{path} was replaced {_ATTEMPTS} times while it was being locked", path=path)

    def release(self, *, remove: bool = False) -> None:
        """Give the directory back, and perhaps remove the file first. Calling it twice is allowed."""
        if self._descriptor is not None:
            if remove:
                files.remove(self.path)
            descriptor, self._descriptor = self._descriptor, None
            forks.forget(descriptor)
            os.close(descriptor)


def _in_use(directory: Path, path: Path, descriptor: int) -> DirectoryInUseError:
    holder = _holder(descriptor)
    who = f"process {holder}" if holder else "another process"
    return DirectoryInUseError(
        f"{directory} is in use by {who}, which holds {path}: stop it, or give this replica a directory of its own",
        path=directory,
    )


def _lock(descriptor: int) -> bool:
    """Lock the file unless another process has; return whether that worked."""
    try:
        if hasattr(fcntl, "F_OFD_SETLK"):
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether `path` still names the open file."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))


def _holder(descriptor: int) -> int | None:
    """Return the process that holds the lock, if that can be found out."""
    if not hasattr(fcntl, "F_OFD_GETLK"):
        return None
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, question))
    except OSError:
        return None
    if kind == fcntl.F_UNLCK:
        return None
    # The lock of an open file description has no process; its owner is found in /proc, for our own user.
    return process if process > 0 else _process_with_lock_on(os.fstat(descriptor))


def _process_with_lock_on(file: os.stat_result) -> int | None:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            for name in os.listdir(process / "fd"):
                if (
                    os.path.samestat(os.stat(process / "fd" / name), file)
                    and b"lock:" in (process / "fdinfo" / name).read_bytes()
                ):
                    return int(process.name)
        except OSError:
            continue  # gone meanwhile, or not ours to look at
    return None
