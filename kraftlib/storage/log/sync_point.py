"""`kraftlib-sync.json`: the greatest durable end of the log, so that damage cannot pass for a torn tail.

Bad bytes at the end of a log mean one of two things: they were being written when the machine stopped, or they were
durable once and are broken now. Only a note of the durable end can tell them apart. So each flush, when it is through,
writes down what it made durable, in one of two slots in turn:

    {"segment":0,"inode":77,"mtime_ns":0,"position":4096,"end_offset":12,"end_epoch":3,"segment_crc":1,"generation":9,
     "exact":0,"layout":1,"crc":305419896}

one padded line of 512 bytes each, each in a page of its own: torn or lost bytes spoil one of them. Releases that knew
no `exact` had the second one right behind the first. `segment_crc` is the CRC-32C of *all* bytes of the segment up to
`position`, also of base offsets and epochs, which the CRC of a batch leaves out; -1 where it is not known. `crc` is
that of the line without that key. A slot of another `layout` is no slot of ours; the first release wrote none, which is
1.

A note may be too old but never claims too much: it is **lowered, durably, before the log is cut**. Its age is a matter
of choice:

* `exact` 0: a flush does not wait for the note, and the kernel writes it back within seconds. It is synced where a
  segment ends and at a clean end, and only then names the time of change of the segment.
* `exact` 1: it is synced before the flush is reported, as every later one would have been. So bytes behind it were
  never acknowledged, however whole they look: bad bytes there are a torn tail even before whole batches, which a disk
  may have written first. Only a replica that no other can repair needs that (`RaftConfig.sync_note`). The slots are
  written in place, so the sync has nothing but one page to write.

Before the first flush whose note is not to be waited for, an exact one is replaced in both slots, durably.

A note is **void**, and no sign of damage, if another program has written since: the segment is another file, or has
changed after our clean end, or Kafka has rewritten `quorum-state`. `position` 0 without an `end_epoch` claims nothing,
unless it is exact.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from kraftlib.frozen import immutable
from kraftlib.storage import files, names, notes
from kraftlib.storage.notes import NoteError
from kraftlib.storage.reserve import Reserve
from kraftlib.types import Epoch, Offset

SLOT_SIZE: Final = 512
SLOT_PLACES: Final = (0, 4_096)
FILE_SIZE: Final = SLOT_PLACES[1] + SLOT_SIZE
LAYOUT: Final = 1
UNKNOWN_CRC: Final = -1

_OLD_PLACE: Final = SLOT_SIZE
"""Where the second slot was in releases that knew no exact notes."""
_FIELDS: Final = (
    "segment", "inode", "mtime_ns", "position", "end_offset", "end_epoch", "segment_crc", "generation",
)  # fmt: skip


class Mark(NamedTuple):
    """A place between two batches. Made with every append, so it is no attrs class."""

    segment: Offset
    """Base offset of the segment that it lies in."""
    inode: int
    """Which file that is; 0 for none."""
    position: int
    end_offset: Offset
    end_epoch: Epoch
    """Epoch of the batch before; -1 if there is none."""
    crc: int
    """CRC-32C of the segment up to `position`; `UNKNOWN_CRC` if they were never all read."""


@immutable(kw_only=True)
class SyncPoint:
    """The contents of one slot."""

    mark: Mark
    mtime_ns: int
    """Time of change of the segment at a clean end; 0 while the log is in use."""
    generation: int
    is_exact: bool = False
    """Whether nothing behind it was ever acknowledged."""

    @property
    def claims_nothing(self) -> bool:
        """Whether it says only that there is nothing to say."""
        return self.mark.position == 0 and self.mark.end_epoch < 0 and not self.is_exact


NOTHING: Final = Mark(0, 0, 0, 0, -1, 0)
"""The mark that claims nothing."""


class SyncPointFile:
    """The two slots, open for writing. Not for two threads at once, but for `exact`."""

    exact: bool
    """Whether notes are exact from the next one on."""

    def __init__(self, directory: Path, *, file_mode: int, exact: bool = False, reserve: Reserve | None = None) -> None:
        """`reserve` is given up where the disk is full: some file systems write even in place to a new block."""
        self.exact = exact
        self._reserve: Final = reserve if reserve is not None else Reserve(directory, size=0)
        self._path: Final = directory / names.SYNC_POINT
        found = max(_read_slots(directory), key=_generation, default=None)
        self._generation = 0 if found is None else found.generation
        self._is_exact = found is not None and found.is_exact
        if not self._path.exists():
            os.close(files.create(self._path, mode=file_mode))
            files.sync_directory(directory)
        self._descriptor = files.open_existing(self._path, files.WRITE)

    def note(self, mark: Mark, *, durable: bool) -> None:
        """Note, after a flush, that everything up to `mark` is durable; durably, if that is wanted. Raises OSError."""
        exact = self.exact
        if self._is_exact and not exact:
            self.replace(mark)
            return
        self.write(mark, exact=exact)
        if exact or durable:
            self.sync()

    def write(self, mark: Mark, *, mtime_ns: int = 0, exact: bool = False) -> None:
        """Fill the slot whose turn it is. Not durable itself. Raises OSError."""
        self._generation = generation = self._generation + 1
        self._is_exact = exact
        self._put(_slot(mark, mtime_ns, generation, exact), SLOT_PLACES[generation % 2])

    def _put(self, slot: bytes, place: int) -> None:
        self._reserve.spend(lambda: files.write_at(self._descriptor, slot, place))

    def sync(self) -> None:
        """Make durable what was noted. Raises OSError."""
        files.sync_data(self._descriptor)

    def replace(self, mark: Mark, *, mtime_ns: int = 0) -> None:
        """Note it in both slots, durably: nothing that was noted before counts any more. Raises OSError."""
        exact = self.exact and mark != NOTHING
        self.write(mark, mtime_ns=mtime_ns, exact=exact)
        self.sync()  # a disk that tears two pages at once has torn only one that counts
        self.write(mark, mtime_ns=mtime_ns, exact=exact)
        self._put(b" " * (SLOT_SIZE - 1) + b"\n", _OLD_PLACE)
        self._reserve.spend(lambda: os.ftruncate(self._descriptor, FILE_SIZE))
        self.sync()

    def close(self) -> None:
        """Release the file. Calling it twice is allowed."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def replace_sync_point(directory: Path, mark: Mark, *, file_mode: int) -> None:
    """Note it in both slots, durably, while no log is open. Raises: StorageError."""
    file = SyncPointFile(directory, file_mode=file_mode)
    with files.storage_errors("write", directory / names.SYNC_POINT):
        try:
            file.replace(mark)
        finally:
            file.close()


def _generation(point: SyncPoint) -> int:
    return point.generation


def _slot(mark: Mark, mtime_ns: int, generation: int, exact: bool) -> bytes:
    # Formatted by hand, since each flush does it: json.dumps takes three times as long.
    line = (
        b'{"segment":%d,"inode":%d,"mtime_ns":%d,"position":%d,"end_offset":%d,"end_epoch":%d,"segment_crc":%d,'
        b'"generation":%d,"exact":%d,"layout":%d}'
        % (
            mark.segment,
            mark.inode,
            mtime_ns,
            mark.position,
            mark.end_offset,
            mark.end_epoch,
            mark.crc,
            generation,
            exact,
            LAYOUT,
        )
    )
    return notes.seal(line).ljust(SLOT_SIZE - 1) + b"\n"


def read_sync_point(directory: Path) -> SyncPoint | None:
    """Return the newest slot that can be read; None if none can, or if there is no such file."""
    return max(_read_slots(directory), key=_generation, default=None)


def _read_slots(directory: Path) -> list[SyncPoint]:
    path = directory / names.SYNC_POINT
    try:
        descriptor = files.open_regular(path, files.READ)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise files.as_storage_error("read", path, error) from error
    try:
        slots = [_read_slot(descriptor, place) for place in (*SLOT_PLACES, _OLD_PLACE)]
    finally:
        os.close(descriptor)
    return [point for point in slots if point is not None]


def _read_slot(descriptor: int, place: int) -> SyncPoint | None:
    """Return what a slot says; None, if it cannot be read, be it for an error of the disk."""
    try:
        data = files.read_at(descriptor, SLOT_SIZE, place)
        fields = notes.parse_sealed(data[:-1].rstrip(b" ") if data.endswith(b"\n") else b"")
    except (OSError, NoteError):
        return None
    if fields.get("layout", LAYOUT) != LAYOUT:
        return None
    if not all(type(fields.get(name)) is int for name in _FIELDS):
        return None
    mark = Mark(
        fields["segment"], fields["inode"], fields["position"], fields["end_offset"], fields["end_epoch"],
        fields["segment_crc"],
    )  # fmt: skip
    if min(mark.segment, mark.position) < 0 or mark.end_offset < mark.segment:
        return None
    return SyncPoint(
        mark=mark, mtime_ns=fields["mtime_ns"], generation=fields["generation"], is_exact=fields.get("exact") == 1
    )
