"""Records the operations of a package on the files below a directory, from which crash states are made.

The operations are those that a disk cares about. A write or a new size belongs to a *file*, which has a number and not
a name; a name is an entry of a directory and comes and goes by itself. Syncing a file makes its bytes durable, syncing
a directory makes its entries durable, and neither does the other's work.

    with FileTrace(directory) as trace:
        log.append(batches)
        log.flush()
        trace.mark("flushed")          # from here on the caller was told
    trace.operations                   # [Write(...), Sync(...), Mark("flushed")]

Files bear the numbers of the trace, and their times count its operations, as long as the package is watched: a note
about a file (inode and time) is true of every state made from the trace, in any directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import attrs

from tools.storage_proof.os_watch import Call, StatHandler, watching

_EPOCH_NS: Final = 1_700_000_000 * 10**9
_TICK_NS: Final = 10**6


@attrs.frozen
class Create:
    """A new, empty file gets a name."""

    file: int
    path: str


@attrs.frozen
class Write:
    """Bytes are put into a file; it grows where they reach beyond its end."""

    file: int
    position: int
    data: bytes


@attrs.frozen
class Resize:
    """A file is cut, or made longer with zeros."""

    file: int
    size: int


@attrs.frozen
class Rename:
    """A file gets another name, atomically; an older file of that name loses it."""

    file: int
    old: str
    new: str


@attrs.frozen
class Remove:
    """A name goes."""

    path: str


@attrs.frozen
class MakeDirectory:
    """A directory comes."""

    path: str


@attrs.frozen
class Sync:
    """The bytes of a file were to be made durable. If that failed, those that were pending may be lost for ever."""

    file: int
    worked: bool = True


@attrs.frozen
class SyncDirectory:
    """The names in a directory were to be made durable."""

    path: str
    worked: bool = True


@attrs.frozen
class Mark:
    """The test says what it knows at this place: an operation that was reported as done, or one that is about to be
    done."""

    what: Any


Operation = Create | Write | Resize | Rename | Remove | MakeDirectory | Sync | SyncDirectory | Mark


@attrs.frozen
class StoredFile:
    """Content, number and time of a file in an image."""

    file: int
    data: bytes
    modified: int = 0
    """In operations of the trace since its beginning."""


@attrs.frozen(kw_only=True)
class Image:
    """The contents of a disk: files by path below the directory, and all directories."""

    files: Mapping[str, StoredFile]
    directories: frozenset[str] = frozenset()

    def lay_out(self, directory: Path) -> StatHandler:
        """Write it into a directory that is empty or does not exist; return what tells numbers and times of its files
        as they were in the trace, for `watching`."""
        directory.mkdir(parents=True, exist_ok=True)
        for name in sorted(self.directories):
            (directory / name).mkdir(exist_ok=True)
        by_inode: dict[int, StoredFile] = {}
        for name, stored in self.files.items():
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, stored.data)
                by_inode[os.fstat(descriptor).st_ino] = stored
            finally:
                os.close(descriptor)

        def on_stat(subject: object, found: os.stat_result) -> os.stat_result:
            stored = by_inode.get(found.st_ino)
            return found if stored is None else told(found, stored.file, stored.modified)

        return on_stat

    @classmethod
    def read(cls, directory: Path) -> Image:
        """Return what stands in a directory; files are numbered in the order of their names."""
        paths = sorted(path for path in directory.rglob("*") if not path.is_symlink())
        found = {str(path.relative_to(directory)): path.read_bytes() for path in paths if path.is_file()}
        return cls(
            files={name: StoredFile(number, data) for number, (name, data) in enumerate(found.items(), start=1)},
            directories=frozenset(str(path.relative_to(directory)) for path in paths if path.is_dir()),
        )


class ProcessKilled(BaseException):
    """The process counts as killed. This is not an Exception, so that no error handler catches it."""


@attrs.frozen(kw_only=True)
class Fault:
    """The outcome of a call: an error, fewer bytes than were asked for, or the end of the process."""

    errno: int = 0
    short: bool = False
    """A write takes only half of its bytes; before `errno`, if there is one, else as if there were more to come."""
    kill: bool = False

    def __str__(self) -> str:
        words = ["short"] * self.short + ["kill"] * self.kill + [os.strerror(self.errno)] * bool(self.errno)
        return " then ".join(words)


class FileTrace:
    """Watches a package and takes down what it does below a directory.

    `before` is asked for each call and may name a fault for it. `image` is what the directory is thought to hold, with
    numbers and times from an earlier trace; read from the directory unless given. `with_stacks` notes which lines of
    the package made a call.
    """

    def __init__(
        self,
        directory: Path,
        *,
        package: str = "kraftlib.storage",
        image: Image | None = None,
        before: Callable[[Call], Fault | None] | None = None,
        with_stacks: bool = False,
    ) -> None:
        self.directory: Final = directory
        self.initial: Final = Image.read(directory) if image is None else image
        self.operations: Final[list[Operation]] = []
        self.calls: Final[list[Call]] = []
        """Every call that may change something, in the order in which they were made."""
        self._before = before
        self._watch = watching(package, self._handle, on_stat=self._told, with_stacks=with_stacks)
        self._prefix = f"{directory}{os.sep}"
        self._names = {name: stored.file for name, stored in self.initial.files.items()}
        self._modified = {stored.file: stored.modified for stored in self.initial.files.values()}
        self._numbers = max([0, *self._modified])
        self._time = max([0, *self._modified.values()])
        self._open: dict[int, tuple[str, int]] = {}  # descriptor -> path, number of the file; 0: a directory
        self._killed = False

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.__exit__(kind, error, trace)
        if self._killed:
            self.restart()

    def mark(self, what: object) -> None:
        """Note what is known at this place."""
        self.operations.append(Mark(what))

    def marks(self) -> list[Any]:
        """Return what was marked, in order."""
        return [operation.what for operation in self.operations if isinstance(operation, Mark)]

    def image(self) -> Image:
        """Return what the directory holds now, as its processes see it: with parts that are not durable yet."""
        found = Image.read(self.directory)
        return attrs.evolve(
            found,
            files={
                path: attrs.evolve(stored, file=self._names[path], modified=self._modified[self._names[path]])
                for path, stored in found.files.items()
            },
        )

    @property
    def open_paths(self) -> Sequence[str]:
        """The paths of all open files. The list is empty when every user of a file has closed it or failed."""
        return sorted(path for path, _ in self._open.values())

    def restart(self) -> None:
        """Let a new process take the place of one that was killed: its open files are closed, nothing else happens."""
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()
        self._killed = False

    # Calls ------------------------------------------------------------------------------------------

    def _handle(self, call: Call, really: Callable[..., Any]) -> Any:
        if self._killed:
            raise ProcessKilled
        if not self._concerns(call):
            return really(*call.arguments, **call.keywords)
        self.calls.append(call)
        fault = self._before(call) if self._before is not None else None
        if fault is None:
            return self._perform(call, really)
        if fault.short and call.name in ("pwrite", "pwritev"):
            result = self._perform(_halved(call), really)
            if not fault.errno and not fault.kill:
                return result
        if fault.kill:
            self._killed = True
            raise ProcessKilled
        if not fault.errno:
            return self._perform(call, really)
        self._failed(call)
        raise OSError(fault.errno, os.strerror(fault.errno))

    def _concerns(self, call: Call) -> bool:
        subject = call.arguments[0]
        return subject in self._open if isinstance(subject, int) else self._inside(subject) is not None

    def _inside(self, path: str | os.PathLike[str]) -> str | None:
        """Return the path as seen from the directory, None if it is not in there."""
        text = os.fspath(path)
        if text == str(self.directory):
            return "."
        return text.removeprefix(self._prefix) if text.startswith(self._prefix) else None

    def _path(self, call: Call, number: int = 0) -> str:
        path = self._inside(call.arguments[number])
        if path is None:
            raise AssertionError(f"{call} leads out of {self.directory}")
        return path

    def _perform(self, call: Call, really: Callable[..., Any]) -> Any:
        """Do it, then take it down."""
        file = self._open[call.arguments[0]][1] if isinstance(call.arguments[0], int) else 0
        result = really(*call.arguments, **call.keywords)
        match call.name:
            case "open":
                self._opened(self._path(call), call.arguments[1], result)
            case "close":
                del self._open[call.arguments[0]]
            case "pwrite" | "pwritev":
                data = call.arguments[1]
                whole = bytes(data) if call.name == "pwrite" else b"".join(map(bytes, data))
                self._note(file, Write(file, call.arguments[2], whole[:result]))
            case "ftruncate":
                self._note(file, Resize(file, call.arguments[1]))
            case "fsync" | "fdatasync":
                self._synced(call.arguments[0], worked=True)
            case "rename" | "replace":
                old, new = self._path(call), self._path(call, 1)
                self._names[new] = self._names.pop(old)
                self.operations.append(Rename(self._names[new], old, new))
            case "unlink" | "remove":
                path = self._path(call)
                self._names.pop(path, None)
                self.operations.append(Remove(path))
            case "mkdir":
                self.operations.append(MakeDirectory(self._path(call)))
            case "rmdir":
                self.operations.append(Remove(self._path(call)))
            case "fchmod" | "chmod" | "fallocate" | "posix_fallocate":
                pass  # none changes what is ever read: the last is for space that is given up again
            case _:
                raise AssertionError(f"{call}: a trace does not know what that does")
        return result

    def _opened(self, path: str, flags: int, descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._open[descriptor] = (path, 0)
            return
        file = self._names.get(path)
        if file is None:
            self._numbers += 1
            file = self._names[path] = self._numbers
            self._note(file, Create(file, path))
        elif flags & os.O_TRUNC:
            self._note(file, Resize(file, 0))
        self._open[descriptor] = (path, file)

    def _note(self, file: int, operation: Operation) -> None:
        self.operations.append(operation)
        self._time += 1
        self._modified[file] = self._time

    def _failed(self, call: Call) -> None:
        if call.name in ("fsync", "fdatasync"):
            self._synced(call.arguments[0], worked=False)
        elif call.name == "close":  # the descriptor is gone all the same
            os.close(call.arguments[0])
            del self._open[call.arguments[0]]

    def _synced(self, descriptor: int, *, worked: bool) -> None:
        path, file = self._open[descriptor]
        self.operations.append(Sync(file, worked) if file else SyncDirectory(path, worked))

    def _told(self, subject: int | str | os.PathLike[str], found: os.stat_result) -> os.stat_result:
        if isinstance(subject, int):
            file = self._open.get(subject, ("", 0))[1]
        else:
            file = self._names.get(self._inside(subject) or "", 0)
        return told(found, file, self._modified[file]) if file else found


_STAT_NAMES: Final = tuple(name for name in dir(os.stat_result) if name.startswith("st_"))


def told(found: os.stat_result, file: int, modified: int) -> os.stat_result:
    """Return `found` with the number and the time that a trace gives the file."""
    names = {name: getattr(found, name) for name in _STAT_NAMES}
    modified_ns = _EPOCH_NS + modified * _TICK_NS
    names |= {"st_mtime_ns": modified_ns, "st_mtime": modified_ns / 10**9, "st_ino": file}
    values = list(found)
    values[stat.ST_INO], values[stat.ST_MTIME] = file, modified_ns // 10**9
    return os.stat_result(values, names)


def _halved(call: Call) -> Call:
    """Return the call for half as many bytes, at least one where there are any."""
    descriptor, data, *rest = call.arguments
    whole = data if call.name == "pwrite" else b"".join(map(bytes, data))
    half = whole[: max(1, len(whole) // 2)]
    return attrs.evolve(call, arguments=(descriptor, half if call.name == "pwrite" else [half], *rest))
