"""What may happen in a log at the same time: every pair of calls that two threads of a replica may be in.

By the rule of `kraftlib.storage` there are three of them. While the disk thread flushes, the loop goes on; while it
changes the log, the loop only reads. The background goes on beside both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import StorageError
from kraftlib.storage import names
from kraftlib.storage.damage.scrub import ScrubFinding
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.reserve import Reserve
from kraftlib.types import OffsetAndEpoch
from tests.storage.builders import a_batch, snapshot_bytes, store_whole_snapshot

SIZE: Final = 100
BATCHES: Final = [a_batch(offset, 1 + offset // 7, size=SIZE) for offset in range(24)]
SEGMENT_BYTES: Final = 3 * BATCHES[0].size
FLUSHED: Final = 11
APPENDED: Final = 14
COMMITTED: Final = 8
RESERVE_BYTES: Final = 1 << 16


def at(offset: int) -> OffsetAndEpoch:
    """Return the id of the snapshot that ends there."""
    return OffsetAndEpoch(offset=offset, epoch=BATCHES[offset - 1].epoch)


class Scene:
    """A log with a past: five segments, the last batches not flushed, two snapshots, a spare segment and a reserve."""

    tail_bytes = 0
    snapshots: Sequence[int] = (3, 7)

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.reserve = Reserve(directory, size=RESERVE_BYTES)
        self.log = self.opened()
        self.log.append(BATCHES[:1])
        for batch in BATCHES[1:FLUSHED]:
            self.log.append([batch])
        self.log.flush()
        for offset in self.snapshots:
            self.store(offset)
        self.late = self.log.create_snapshot(at(5))
        self.late.write(snapshot_bytes(at(5)))
        self.begin()

    def begin(self) -> None:
        """What has happened besides."""
        for batch in BATCHES[FLUSHED:APPENDED]:
            self.log.append([batch])

    def opened(self) -> FileReplicatedLog:
        """Open the log."""
        return FileReplicatedLog.open(
            self.directory,
            segment_bytes=SEGMENT_BYTES,
            reserve_bytes=SEGMENT_BYTES,
            reserve=self.reserve,
            tail_bytes=self.tail_bytes,
            keep_damage=True,
        )

    def store(self, offset: int) -> None:
        """Let there be a snapshot."""
        store_whole_snapshot(self.log, offset, at(offset).epoch)

    # On the loop ----------------------------------------------------------------------------------

    def read(self) -> None:
        """Read what is committed, as a listener does; where the log begins later, it loads a snapshot."""
        for offset in (0, 4, 6, COMMITTED - 1):
            if offset < self.log.start_offset:
                continue
            try:
                batches = self.log.read(offset, 1 << 20)
            except StorageError:
                if offset >= self.log.start_offset and not self.may_miss(offset):
                    raise
                continue
            assert batches[0].base_offset == offset
            for batch in batches:
                if batch.last_offset < COMMITTED:
                    assert batch.data == BATCHES[batch.base_offset].data

    def may_miss(self, offset: int) -> bool:
        """Whether this record may be missing."""
        return False

    def append(self) -> None:
        """Append so many batches that two segments are begun."""
        for batch in BATCHES[APPENDED : APPENDED + 5]:
            self.log.append([batch])

    def append_from_the_reserve(self) -> None:
        """Append on a disk that is full for a moment."""
        self.reserve.release()
        self.append()

    def begin_epoch(self) -> None:
        """Begin the epoch of the next batch."""
        self.log.begin_epoch(BATCHES[APPENDED].epoch, APPENDED)

    def delete(self) -> None:
        """Let the log begin at the second snapshot."""
        self.log.delete_before(at(7))

    def look(self) -> None:
        """Look at everything that can be looked at."""
        log = self.log
        starts, snapshots = log.epoch_starts(), log.snapshots()
        assert list(starts) == sorted(starts, key=lambda start: start.start_offset)
        assert list(snapshots) == sorted(snapshots)
        assert log.start_offset <= log.end_offset
        assert log.size_bytes >= 0
        assert list(log.control_batches()) == []
        log.holes()

    # On the disk thread ---------------------------------------------------------------------------

    def flush(self) -> None:
        """Flush twice: what was done meanwhile is in the second one."""
        self.log.flush()
        self.log.flush()

    def truncate(self) -> None:
        """Cut the log, two segments before its end."""
        assert self.log.truncate(COMMITTED) == COMMITTED

    def truncate_a_little(self) -> None:
        """Cut the last segment."""
        assert self.log.truncate(APPENDED - 1) == APPENDED - 1

    def install(self) -> None:
        """Begin anew at a snapshot."""
        self.log.install_snapshot(at(20))

    def set_aside(self) -> None:
        """Forget the snapshot at which the log begins."""
        self.log.set_snapshot_aside(at(7), "damaged (injected)")

    def find_damage(self) -> None:
        """Look closely at a segment."""
        self.log.find_damage(4)

    def repair(self) -> None:
        """Fill the first hole."""
        hole = self.log.holes()[0]
        assert self.log.write_repair(BATCHES[hole.start_offset : hole.end_offset])

    # In the background ----------------------------------------------------------------------------

    def freeze(self) -> None:
        """Finish a snapshot."""
        self.late.freeze()

    def look_at_space(self) -> None:
        """Take the reserve again."""
        self.log.look_at_space()

    def prepare_spare(self) -> None:
        """Make the next segment."""
        self.log.prepare_spare()

    def scrub(self) -> None:
        """Read everything. Nothing is wrong."""
        found = [finding for finding in self.log.scrub(lambda: None) if isinstance(finding, ScrubFinding)]
        assert not found, found

    # What must be true then -----------------------------------------------------------------------

    def check(self) -> None:
        """The log goes on, has what it should, and is found so by the next start."""
        log = self.log
        if self.reserve.is_spent:  # the disk counts as full until the log has looked at it
            log.look_at_space()
        assert not log.is_full
        if self.reserve.is_taken:
            assert (self.directory / names.RESERVE).stat().st_size == RESERVE_BYTES
        while holes := log.holes():
            log.write_repair(BATCHES[holes[0].start_offset : holes[0].end_offset])
        end = log.end_offset
        log.append(BATCHES[end : end + 2])
        assert log.flush() == end + 2
        self._check_content(log)
        first = [log.start_offset, log.end_offset, log.snapshots(), log.size_bytes]
        log.close()
        again = self.opened()
        self._check_content(again)
        assert [max(again.start_offset, log.start_offset), *first[1:]] == [
            log.start_offset, again.end_offset, again.snapshots(), again.size_bytes,
        ]  # fmt: skip
        assert not again.holes()
        again.close()
        self._check_names()

    def _check_content(self, log: FileReplicatedLog) -> None:
        offset = log.start_offset
        while offset < log.end_offset:
            for batch in log.read(offset, 1 << 20):
                if batch.base_offset >= log.start_offset:
                    assert batch.data == BATCHES[batch.base_offset].data
                offset = batch.end_offset
        for start in log.epoch_starts():
            assert start.epoch == BATCHES[start.start_offset].epoch
        for snapshot_id in log.snapshots():
            log.check_snapshot(snapshot_id, step=lambda: None)

    def _check_names(self) -> None:
        """Nothing is left of what was deleted."""
        there = {path.name for path in self.directory.iterdir()}
        bases = {names.parse_segment_name(name) for name in there} - {None}
        of_segments = {names.parse_name_of_segment_file(name) for name in there} - {None}
        assert of_segments == bases
        assert not [name for name in there if name.endswith((".part", ".tmp"))]


class InMemory(Scene):
    """All batches are in memory."""

    tail_bytes = 1 << 20


class WithSpare(Scene):
    """There is none yet: the next segment may be filled with zeros beforehand."""

    def opened(self) -> FileReplicatedLog:
        """Open the log."""
        return FileReplicatedLog.open(
            self.directory, segment_bytes=SEGMENT_BYTES, reserve_bytes=SEGMENT_BYTES, zero_fill=True,
            reserve=self.reserve, tail_bytes=0, keep_damage=True,
        )  # fmt: skip


class Spent(Scene):
    """The disk was full, and has space again."""

    def begin(self) -> None:
        """What has happened besides."""
        super().begin()
        self.reserve.release()


class Installing(Scene):
    """A snapshot was downloaded that is ahead of the log."""

    def begin(self) -> None:
        """What has happened besides."""
        super().begin()
        self.store(20)


class Begun(Scene):
    """The log begins at a snapshot, and what is before is still to be removed."""

    def begin(self) -> None:
        """What has happened besides."""
        super().begin()
        self.log.flush()
        self.log.delete_before(at(7))

    def may_miss(self, offset: int) -> bool:
        """Whether this record may be missing."""
        return offset < 6


class Damaged(Scene):
    """A batch is damaged that no snapshot stands in for, and nobody knows."""

    snapshots = (3,)

    def begin(self) -> None:
        """What has happened besides."""
        path = self.directory / names.segment_name(3)
        data = path.read_bytes()
        path.write_bytes(data[: SIZE // 2] + b"?" + data[SIZE // 2 + 1 :])

    def may_miss(self, offset: int) -> bool:
        """Whether this record may be missing."""
        return 3 <= offset < 6


class Holed(Damaged):
    """It is known."""

    def begin(self) -> None:
        """What has happened besides."""
        super().begin()
        assert self.log.find_damage(3)


@attrs.frozen
class Meeting:
    """Two calls that may happen at the same time."""

    scene: type[Scene]
    one: Callable[[Scene], None]
    other: Callable[[Scene], None]

    def __str__(self) -> str:
        return f"{self.scene.__name__}: {self.one.__name__} and {self.other.__name__}"


def _pairs(
    scene: type[Scene], ones: Sequence[Callable[[Scene], None]], others: Sequence[Callable[[Scene], None]]
) -> list[Meeting]:
    return [Meeting(scene, one, other) for one in ones for other in others]


S = Scene
MEETINGS: Final = (
    # The disk thread flushes, and the loop goes on.
    *_pairs(S, [S.read, S.append, S.append_from_the_reserve, S.begin_epoch, S.delete, S.look], [S.flush]),
    # The disk thread changes the log, and the loop only reads.
    *_pairs(S, [S.read, S.look], [S.truncate, S.truncate_a_little]),
    *_pairs(InMemory, [S.read], [S.truncate, S.flush]),
    *_pairs(Installing, [S.read, S.look], [S.install]),
    *_pairs(Begun, [S.read, S.look], [S.set_aside]),
    *_pairs(Damaged, [S.read, S.look], [S.find_damage]),
    *_pairs(Holed, [S.read, S.look], [S.repair]),
    # The background goes on beside both.
    *_pairs(S, [S.freeze, S.scrub], [S.flush, S.truncate, S.append, S.delete]),
    *_pairs(Begun, [S.freeze, S.scrub], [S.flush, S.append]),
    *_pairs(Installing, [S.freeze, S.scrub], [S.install]),
    *_pairs(Begun, [S.freeze], [S.set_aside]),
    *_pairs(Spent, [S.look_at_space], [S.flush, S.truncate, S.append_from_the_reserve]),
    *_pairs(WithSpare, [S.prepare_spare], [S.append, S.flush, S.truncate]),
)
