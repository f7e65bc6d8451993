"""Files as this library needs them: opened without following links, replaced atomically, made durable on purpose.

Every OSError leaves as a StorageError that names the path, since no caller acts differently on one errno or another: a
disk that refuses once is not trusted any more.

Making a name durable takes two syncs. The file's own says that its bytes will survive, the directory's that its name
will; after a rename the old or the new content is found, never a mixture.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from kraftlib.errors import StorageError
from kraftlib.storage import descriptors

logger: Final = logging.getLogger(__name__)

FILE_MODE: Final = 0o600
"""Mode of new files unless told otherwise: other users have no right to election state and records."""

_CAREFULLY: Final = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""No link is followed, and opening a FIFO does not wait for its other end."""
READ: Final = os.O_RDONLY | _CAREFULLY
WRITE: Final = os.O_RDWR | _CAREFULLY
READ_NAMED: Final = READ & ~getattr(os, "O_NOFOLLOW", 0)
"""For a file that the user of a command has named: a link to it is followed."""

_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}
LARGE_BYTES: Final = 64 << 20
"""It takes more than ten milliseconds to free a file of this size."""
_WRITEV_MAX: Final = 1_024
_FALLOC_FL_KEEP_SIZE: Final = 1
_SYNC_FILE_RANGE_WRITE: Final = 2
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS)

sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
"""Make the bytes of an open file durable, and its size, but not its times. Raises OSError."""


@contextmanager
def storage_errors(doing: str, path: Path) -> Iterator[None]:
    """Let an OSError leave as a StorageError that says what was being done to `path`."""
    try:
        yield
    except OSError as error:
        raise as_storage_error(doing, path, error) from error


def as_storage_error(doing: str, path: Path, error: OSError) -> StorageError:
    """Return the StorageError for `error`; to be raised from it."""
    return StorageError(f"cannot {doing} {path}: {error.strerror or error}", path=path)


def directory_mode(file_mode: int) -> int:
    """Return the mode of a directory for files of `file_mode`: a user who may read may also search."""
    return file_mode | (file_mode & 0o444) >> 2


def make_directory(path: Path, *, mode: int) -> bool:
    """Make a directory, durably, unless it is there; return whether it was made. Its parent must exist."""
    with storage_errors("make the directory", path):
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            if not path.is_dir():
                raise
            return False
    sync_directory(path.parent)
    return True


def refuse_link(path: Path) -> None:
    """Raise StorageError if `path` is a symbolic link: our files must lie where we were told."""
    if path.is_symlink():
        raise StorageError(f"{path} is a symbolic link, which is not followed here", path=path)


def create(path: Path, *, mode: int) -> int:
    """Create a file that must not exist, with exactly this mode, and return it open for reading and writing."""
    with storage_errors("create", path):
        descriptor = descriptors.spend(lambda: os.open(path, WRITE | os.O_CREAT | os.O_EXCL, mode))
        try:
            os.fchmod(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def open_existing(path: Path, flags: int = READ) -> int:
    """Open a regular file that must exist and return its descriptor. Raises: StorageError."""
    with storage_errors("open", path):
        return open_regular(path, flags)


@contextmanager
def opened(path: Path, flags: int = READ) -> Iterator[int]:
    """Open a regular file that must exist for the block, and yield its descriptor. Raises: StorageError."""
    descriptor = open_existing(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(path: Path, flags: int, mode: int = FILE_MODE) -> int:
    """Open a file, and refuse what is none: a read of a FIFO or a device may never end.

    Raises: OSError; StorageError, if it is no regular file.
    """
    try:
        descriptor = descriptors.spend(lambda: os.open(path, flags, mode))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise not_regular(path, stat.S_IFLNK) from error
        raise
    with ExitStack() as undo:
        undo.callback(os.close, descriptor)
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind != stat.S_IFREG:
            raise not_regular(path, kind)
        undo.pop_all()
    return descriptor


def not_regular(path: Path, kind: int) -> StorageError:
    """Return the error for something of this kind (`stat.S_IFMT`) in the place of a file."""
    what = _KINDS.get(kind, "something else")
    return StorageError(
        f"{path} is {what}, and a regular file is expected there: move it away, or put back the file that it replaced",
        path=path,
    )


def read_file(path: Path, *, max_bytes: int, flags: int = READ, may_be_lost: bool = False) -> bytes | None:
    """Return the content of a small file, None if there is no such file. Raises: StorageError if it is larger.

    One that `may_be_lost`, since its reader can do without, is empty if the disk cannot read it: it is damaged.
    """
    with storage_errors("read", path):
        try:
            descriptor = open_regular(path, flags)
        except FileNotFoundError:
            return None
        try:
            data = read_at(descriptor, max_bytes + 1, 0)
        except OSError as error:
            if not may_be_lost or error.errno != errno.EIO:
                raise
            logger.error("cannot read %s, so it counts as damaged: %s", path, error.strerror)
            data = b""
        finally:
            os.close(descriptor)
    if len(data) > max_bytes:
        raise StorageError(f"{path} is larger than {max_bytes} bytes", path=path)
    return data


def list_names(directory: Path) -> list[str]:
    """Return the names in a directory, sorted."""
    with storage_errors("list", directory):
        return sorted(descriptors.spend(lambda: os.listdir(directory)))


def size_of(path: Path) -> int:
    """Return the size of a file that must exist."""
    with storage_errors("look at", path):
        return os.stat(path, follow_symlinks=False).st_size


def replace_file(path: Path, data: bytes, *, mode: int = FILE_MODE, durable: bool = True) -> None:
    """Give `path` this content, all or nothing.

    Durable on return unless told otherwise; its reader must then expect an empty file after a crash.
    """
    temporary = path.with_name(path.name + ".tmp")
    remove(temporary)
    descriptor = create(temporary, mode=mode)
    try:
        with storage_errors("write", temporary):
            try:
                write_at(descriptor, data, 0)
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        rename(temporary, path)
    except StorageError:
        with suppress(StorageError):
            remove(temporary)  # its space is wanted where a disk is full
        raise
    if durable:
        sync_directory(path.parent)


def cut(path: Path, size: int) -> None:
    """Cut a file to `size`, durably."""
    with opened(path, WRITE) as descriptor, storage_errors("cut", path):
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)


def rename(old: Path, new: Path) -> None:
    """Rename a file over another; durable once the directory is synced."""
    with storage_errors("rename", old):
        os.replace(old, new)


def rename_new(old: Path, new: Path) -> None:
    """Rename a file to a name that no other has, not even one that was made a moment ago.

    Where the file system has no hard links, the very last moment is not covered. Raises: StorageError.
    """
    with storage_errors("rename", old):
        try:
            os.link(old, new)
        except OSError as error:
            if os.path.lexists(new) or error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
                raise
            os.rename(old, new)
        else:
            os.unlink(old)


def remove(path: Path) -> bool:
    """Remove a file and return whether it was there; durable once the directory is synced."""
    with storage_errors("remove", path):
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True


def remove_beside(path: Path) -> None:
    """Remove a file as `remove` does; a large one gives its space back on a thread of its own.

    To free 1 GiB takes a fifth of a second on ext4, and the caller's next sync would stand behind that.
    """
    try:
        descriptor = os.open(path, READ)
    except OSError:  # it is gone, or another kind of file
        remove(path)
        return
    with ExitStack() as closing:
        closing.callback(os.close, descriptor)
        remove(path)
        if os.fstat(descriptor).st_size >= LARGE_BYTES:
            with suppress(RuntimeError):  # no thread can be had: the space is given back here
                threading.Thread(target=os.close, args=(descriptor,), name="kraftlib-free", daemon=True).start()
                closing.pop_all()


def sync_directory(path: Path) -> None:
    """Make durable which names the directory holds."""
    with storage_errors("sync the directory", path):
        flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_DIRECTORY", 0)
        descriptor = descriptors.spend(lambda: os.open(path, flags))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_at(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write all of `data` at `position`, in as many writes as the kernel wants. Raises OSError."""
    written = os.pwrite(descriptor, data, position)
    while written < len(data):
        rest = memoryview(data)[written:]
        written += os.pwrite(descriptor, rest, position + written)


def write_all_at(descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> None:
    """Write all `parts` one after the other at `position`, in one call if the kernel takes them. Raises OSError."""
    for first in range(0, len(parts), _WRITEV_MAX):
        some = parts[first : first + _WRITEV_MAX]
        size = sum(map(len, some))
        written = os.pwritev(descriptor, some, position)
        if written < size:
            write_at(descriptor, memoryview(b"".join(some))[written:], position + written)
        position += size


def read_at(descriptor: int, size: int, position: int) -> bytes:
    """Return `size` bytes from `position`, fewer only at the end of the file. Raises OSError."""
    data = os.pread(descriptor, size, position)
    while len(data) < size and (more := os.pread(descriptor, size - len(data), position + len(data))):
        data += more
    return data


def reserve(descriptor: int, size: int) -> bool:
    """Reserve disk space for a file to grow to `size` without changing its size; return whether that was possible.

    Raises OSError, if the disk has no such space.
    """
    libc = _libc()
    if libc is None:
        return False
    if libc.fallocate(descriptor, _FALLOC_FL_KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number))


def begin_writing_out(descriptor: int, position: int, size: int) -> None:
    """Let the kernel begin to write these bytes to the disk, and do not wait for it.

    Makes nothing durable; it leaves less to do for the sync that does, and behind which others may have to wait. That
    sync reports the errors: this flag alone takes no error away from it.
    """
    libc = _libc()
    if libc is not None:
        libc.sync_file_range(
            descriptor, ctypes.c_int64(position), ctypes.c_int64(size), ctypes.c_uint(_SYNC_FILE_RANGE_WRITE)
        )


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
