"""The possible contents of a disk after a power cut: every state that the operations of a trace allow, and no other.

Power may go after any operation. Operations synced by then are there. Of the rest, POSIX promises nothing:

* each pending write is there, or not, or some of its sectors are; the size of the file may have grown without the
  bytes, which are zero then, or whatever the disk held there before;
* each pending change of a directory is there or not, in whatever order they were made; a rename is there as a whole;
* a write whose sync failed stays pending for ever: the next sync says nothing about it. So does a cut, until the file
  has grown again, durably: its size is one number, and the new one stands in the place of both.

That is more than any one file system does, so a log that survives it does not lean on a mount option. All combinations
are taken where they are few; where they are many, a sample by a seed, and always the one in which all is there.
"""

from __future__ import annotations

import itertools
import random as chance
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from tools.storage_proof.file_trace import (
    Create,
    Image,
    MakeDirectory,
    Mark,
    Operation,
    Remove,
    Rename,
    Resize,
    StoredFile,
    Sync,
    SyncDirectory,
    Write,
)

GARBAGE: Final = b"\xa5\x5a\x00\xff"
_EXHAUSTIVE_BITS: Final = 6
_TORN_MAX: Final = 24
"""Places at which one write is torn; of longer ones a sample."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class CrashState:
    """One state in which the disk may be found when the power is back."""

    after: int
    """Number of operations that had begun when the power failed."""
    marks: Sequence[Any]
    """The marks that the trace had set by then."""
    image: Image


@attrs.define
class _Pending:
    """A file: its durable content, and the writes and sizes that are not durable yet."""

    durable: bytes
    changes: list[tuple[Write | Resize, int]] = attrs.Factory(list)
    """Each with its time."""
    doomed: int = 0
    """The number of first ones whose sync failed."""
    modified: int = 0

    def settle(self) -> None:
        """All that is not doomed becomes durable; a doomed one stays so, as far as it was not written again."""
        doomed, rest = self.changes[: self.doomed], self.changes[self.doomed :]
        for change, self.modified in rest:
            self.durable = _applied(self.durable, change)
            if any(_grows_over(change, cut) for cut, _ in doomed):
                self.durable = self.durable[: _end_of(change)]
            doomed = [(left, time) for before, time in doomed for left in _left_of(before, change)]
        self.changes, self.doomed = doomed, len(doomed)


@attrs.frozen
class _Content:
    data: bytes
    modified: int


class CrashStates:
    """Iterates over the crash states of a trace, each but once.

    `sector` is what the disk writes at once. Per place at which power may go, no more than `most` combinations are
    taken.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        initial: Image,
        *,
        sector: int = 512,
        most: int = 200,
        seed: int = 0,
    ) -> None:
        self._operations: Final = operations
        self._sector: Final = sector
        self._most: Final = most
        self._random: Final = chance.Random(seed)
        self._names = {path: stored.file for path, stored in initial.files.items()}
        self._directories = set(initial.directories)
        self._files = {
            stored.file: _Pending(stored.data, modified=stored.modified) for stored in initial.files.values()
        }
        self._changes: list[Create | Rename | Remove | MakeDirectory] = []
        self._time = max([0, *(stored.modified for stored in initial.files.values())])

    def __iter__(self) -> Iterator[CrashState]:
        marks: list[Any] = []
        seen: set[tuple[Any, ...]] = set()
        for number, operation in enumerate([None, *self._operations]):
            if isinstance(operation, Mark):
                marks.append(operation.what)
            elif operation is not None:
                self._take(operation)
            following = self._operations[number] if number < len(self._operations) else None
            if isinstance(following, Mark):
                continue  # nothing happens on the disk until then, and more is known
            for image in self._images():
                key = (len(marks), *sorted((path, stored.file, stored.data) for path, stored in image.files.items()))
                if (hashed := hash(key)) not in seen:  # type: ignore[comparison-overlap]
                    seen.add(hashed)  # type: ignore[arg-type]
                    yield CrashState(after=number, marks=tuple(marks), image=image)

    # Pending parts of an operation -----------------------------------------------------------------------

    def _take(self, operation: Operation) -> None:
        match operation:
            case Write() | Resize():
                self._time += 1
                self._files[operation.file].changes.append((operation, self._time))
            case Create():
                self._time += 1
                self._files[operation.file] = _Pending(b"", modified=self._time)
                self._changes.append(operation)
            case Rename() | Remove() | MakeDirectory():
                self._changes.append(operation)
            case Sync(file, worked=True):
                self._files[file].settle()
            case Sync(file):
                self._files[file].doomed = len(self._files[file].changes)
            case SyncDirectory(path, worked=True):
                self._settle_directory(path)
            case _:
                pass

    def _settle_directory(self, path: str) -> None:
        kept: list[Create | Rename | Remove | MakeDirectory] = []
        for change in self._changes:
            if _parent(change) == path:
                _rename(change, self._names, self._directories)
            else:
                kept.append(change)
        self._changes = kept

    # Possible finds --------------------------------------------------------------------------------------

    def _images(self) -> Iterator[Image]:
        choices = self._choices(self._changes)
        if len(choices) > self._most // 2:
            choices = [self._changes, *self._random.sample(choices, self._most // 2)]
        per_choice = [self._namespace(chosen) for chosen in choices]
        # Contents of a file are worked out once per place, since every choice of names may show it.
        contents: dict[int, Sequence[_Content]] = {}
        for names, directories in per_choice:
            files = sorted(set(names.values()))
            for file in files:
                if file not in contents:
                    contents[file] = self._contents(self._files[file])
            most = max(2, self._most // len(per_choice))
            for combination in self._combinations([contents[file] for file in files], most):
                found = dict(zip(files, combination, strict=True))
                yield Image(
                    files={
                        path: StoredFile(file, found[file].data, found[file].modified) for path, file in names.items()
                    },
                    directories=frozenset(directories),
                )

    def _namespace(
        self, changes: Iterable[Create | Rename | Remove | MakeDirectory]
    ) -> tuple[dict[str, int], frozenset[str]]:
        names, directories = dict(self._names), set(self._directories)
        for change in changes:
            _rename(change, names, directories)
        kept = {path: file for path, file in names.items() if _inside(path, directories)}
        return kept, frozenset(directories)

    def _choices(self, items: Sequence[T]) -> list[Sequence[T]]:
        """Return subsets of `items`, each in order: all where there are few, else the corners and a sample."""
        count = len(items)
        if count <= _EXHAUSTIVE_BITS:
            return [[item for bit, item in enumerate(items) if number >> bit & 1] for number in range(1 << count)]
        chosen: list[Sequence[T]] = [items[:end] for end in range(count + 1)]
        chosen += [items[begin:] for begin in range(1, count)]
        chosen += [[*items[:left_out], *items[left_out + 1 :]] for left_out in range(count)]
        chosen += [[item] for item in items]
        chosen += [[item for item in items if self._random.random() < 0.5] for _ in range(2 * count)]
        return chosen

    def _contents(self, file: _Pending) -> Sequence[_Content]:
        """Return what may be found in a file, the newest first."""
        found: dict[bytes, int] = {}

        for chosen in (file.changes, [], *self._choices(file.changes)):
            data = file.durable
            for change, _ in chosen:
                data = _applied(data, change)
            found.setdefault(data, chosen[-1][1] if chosen else file.modified)
        for number, (change, modified) in enumerate(file.changes):
            if isinstance(change, Write):
                for torn in self._torn(change):
                    for chosen in ([], file.changes[:number], [*file.changes[:number], *file.changes[number + 1 :]]):
                        data = file.durable
                        for earlier, _ in chosen:
                            data = _applied(data, earlier)
                        found.setdefault(torn(data), modified)
        return [_Content(data, modified) for data, modified in found.items()]

    def _torn(self, write: Write) -> Iterator[Callable[[bytes], bytes]]:
        """Yield functions that apply a part of a write: up to a sector, from one on, without one; with and without
        the size; and with the former bytes of the disk in place of the missing ones."""
        begin, end = write.position, write.position + len(write.data)
        edges = [begin, *range(begin - begin % self._sector + self._sector, end, self._sector), end]
        parts = list(itertools.pairwise(edges))
        if len(parts) > _TORN_MAX:
            inner = sorted(self._random.sample(range(1, len(parts) - 1), _TORN_MAX - 2))
            places = [0, *inner, len(parts) - 1]
        else:
            places = list(range(len(parts)))
        for place in places:
            yield _partly(write, parts[:place], size=None)
            for filler in (b"\0", GARBAGE):
                yield _partly(write, parts[:place], size=end, filler=filler)
                yield _partly(write, parts[place + 1 :], size=end, filler=filler)
                yield _partly(write, [*parts[:place], *parts[place + 1 :]], size=end, filler=filler)

    def _combinations(self, contents: Sequence[Sequence[_Content]], most: int) -> Iterator[Sequence[_Content]]:
        """Yield one content per file: all combinations, or the corners and a sample."""
        total = 1
        for several in contents:
            total *= len(several)
        if total <= most:
            yield from _product(contents)
            return
        newest = [several[0] for several in contents]
        singles = [(number, content) for number, several in enumerate(contents) for content in several[1:]]
        yield newest
        for number, content in self._random.sample(singles, min(len(singles), most // 2)):
            yield [*newest[:number], content, *newest[number + 1 :]]
        for _ in range(most // 2 - 1):
            yield [self._random.choice(several) for several in contents]


def _product(contents: Sequence[Sequence[_Content]]) -> Iterator[Sequence[_Content]]:
    if not contents:
        yield []
        return
    for first in contents[0]:
        for rest in _product(contents[1:]):
            yield [first, *rest]


def _applied(data: bytes, change: Write | Resize) -> bytes:
    if isinstance(change, Resize):
        return data[: change.size].ljust(change.size, b"\0")
    padded = data.ljust(change.position, b"\0")
    return padded[: change.position] + change.data + padded[change.position + len(change.data) :]


def _left_of(before: Write | Resize, after: Write | Resize) -> Iterator[Write | Resize]:
    """Yield what remains to be seen of a change after another one."""
    if isinstance(before, Resize):
        if _grows_over(after, before):
            gap = _begin_of(after) - before.size
            if gap > 0:
                yield Write(before.file, before.size, bytes(gap))
        elif not isinstance(after, Resize):
            yield before
        return
    begin, end = before.position, _end_of(before)
    first, last = _begin_of(after), max(end, after.size) if isinstance(after, Resize) else _end_of(after)
    if begin < min(end, first):
        yield Write(before.file, begin, before.data[: first - begin])
    if last < end:
        yield Write(before.file, max(begin, last), before.data[max(0, last - begin) :])


def _grows_over(change: Write | Resize, cut: Write | Resize) -> bool:
    """Whether a write makes the file longer than an earlier cut had left it."""
    return isinstance(change, Write) and isinstance(cut, Resize) and _end_of(change) > cut.size


def _begin_of(change: Write | Resize) -> int:
    return change.size if isinstance(change, Resize) else change.position


def _end_of(change: Write | Resize) -> int:
    return change.size if isinstance(change, Resize) else change.position + len(change.data)


def _partly(
    write: Write, parts: Sequence[tuple[int, int]], *, size: int | None, filler: bytes = b"\0"
) -> Callable[[bytes], bytes]:
    """Return a function that applies these byte ranges of a write. With `size`, the file is that long in any case and
    `filler` stands where nothing was written."""
    parts = tuple(parts)

    def apply(data: bytes) -> bytes:
        result = bytearray(data)
        if size is not None and len(result) < size:
            missing = size - len(result)
            result += (filler * (missing // len(filler) + 1))[:missing]
        for begin, end in parts:
            if len(result) < begin:
                result += bytes(begin - len(result))
            result[begin:end] = write.data[begin - write.position : end - write.position]
        return bytes(result)

    return apply


def _parent(change: Create | Rename | Remove | MakeDirectory) -> str:
    path = change.new if isinstance(change, Rename) else change.path
    return path.rpartition("/")[0] or "."


def _inside(path: str, directories: Mapping[str, Any] | set[str]) -> bool:
    parent = path.rpartition("/")[0]
    return not parent or parent in directories


def _rename(change: Create | Rename | Remove | MakeDirectory, names: dict[str, int], directories: set[str]) -> None:
    match change:
        case Create(file, path):
            names[path] = file
        case Rename(file, old, new):
            names.pop(old, None)
            names[new] = file
        case Remove(path):
            names.pop(path, None)
            directories.discard(path)
        case MakeDirectory(path):
            directories.add(path)
