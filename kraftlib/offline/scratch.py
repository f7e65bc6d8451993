"""Where a backup is made before it has its name: a directory beside it, which the next one removes if it is left over.

    .kraftlib-backup-k3x_9qz1/
      .lock         held by the process that makes the backup
      observer/     what an observer of a running quorum has fetched
      backup/       files of the backup
      packed        the tar of them

A killed process cannot tidy up, but the kernel gives its lock back. So a directory of this name that belongs to the
same user, holds nothing else and is not locked was left behind, and the next backup to the same place removes it. The
lock goes last: a directory that was removed by half is still recognised.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kraftlib.errors import DirectoryInUseError, StorageError
from kraftlib.storage import files, names
from kraftlib.storage.lock import DirectoryLock

logger: Final = logging.getLogger(__name__)

OBSERVER: Final = "observer"
BACKUP: Final = "backup"
PACKED: Final = "packed"
"""Not `.tar`: a tar that may be cut short must not look like one that is whole."""

_PREFIX: Final = ".kraftlib-backup-"
_NAME: Final = re.compile(re.escape(_PREFIX) + "[a-z0-9_]{8}", re.ASCII)
_PARTS: Final = (OBSERVER, BACKUP, PACKED)
_ATTEMPTS: Final = 100


@contextmanager
def scratch_in(place: Path) -> Iterator[Path]:
    """Yield a new directory in `place` that is removed at the end; those that were left behind there are removed first.

    Raises: StorageError.
    """
    _remove_left_over(place)
    directory, lock = _made(place)
    try:
        yield directory
    finally:
        _remove(directory, lock)


def _made(place: Path) -> tuple[Path, DirectoryLock]:
    with files.storage_errors("make a directory for unfinished files in", place):
        for _ in range(_ATTEMPTS):
            directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
            lock = _locked(directory)
            if lock is not None:
                return directory, lock
            # A backup that began at the same moment found it without a lock, and took it for left over.
    raise StorageError(f"{_ATTEMPTS} directories in {place} were removed as soon as they were made", path=place)


def _remove_left_over(place: Path) -> None:
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return  # a lock there does not keep out the process that holds it, so who works here cannot be told
    with files.storage_errors("look for left-over directories in", place), os.scandir(place) as entries:
        found = [Path(entry.path) for entry in entries if _NAME.fullmatch(entry.name) and _is_own_directory(entry)]
    for directory in found:
        if not (directory / names.LOCK).exists():
            _remove_empty(directory)
            continue
        lock = _locked(directory)
        if lock is None:
            continue
        if set(files.list_names(directory)) <= {names.LOCK, *_PARTS}:
            logger.info("%s was left behind by a backup that was broken off: it is removed", directory)
            _remove(directory, lock)
        else:
            lock.release()


def _is_own_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except FileNotFoundError:
        return False


def _locked(directory: Path) -> DirectoryLock | None:
    """Lock a directory; None, if another process uses it, or has removed it."""
    try:
        return DirectoryLock.acquire(directory)
    except DirectoryInUseError:
        return None
    except StorageError:
        if directory.exists():
            raise
        return None


def _remove(directory: Path, lock: DirectoryLock) -> None:
    with files.storage_errors("remove", directory):
        for part in _PARTS:
            path = directory / part
            if path.is_dir():
                shutil.rmtree(path)
            else:
                files.remove(path)
        lock.release(remove=True)
    _remove_empty(directory)


def _remove_empty(directory: Path) -> None:
    """Remove a directory, unless another backup has just done so, or has just locked it to do so."""
    with files.storage_errors("remove", directory):
        try:
            os.rmdir(directory)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise
