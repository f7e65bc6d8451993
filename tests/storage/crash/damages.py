"""What the stories leave out because it begins with damage: by the disk, or by whoever removed a file.

Each of these is a directory that was damaged while nobody ran there, and what a replica then does in it. After an error
at any call of that a new process must find everything that was ever acknowledged, be it as records, in a snapshot that
is whole, or as a hole; with the holes filled it must go on as if nothing had been.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

import attrs

from kraftlib.config import RaftConfig
from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage import names
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log.space import Space
from kraftlib.storage.snapshots.damaged_snapshots import read_snapshot
from kraftlib.types import ElectionState, Endpoint, Offset, OffsetAndEpoch, OffsetRange, ReplicaKey
from tests.storage.builders import snapshot_bytes, some_batches

EVER: Final = some_batches(*[1] * 6, *[2] * 14, size=200)
"""What stands at each offset, three to a segment: nobody ever appends anything else."""
SIZE: Final = len(EVER[0].data)
VOTE: Final = ElectionState(epoch=2, voted_key=ReplicaKey(1))
ZEROS: Final[dict[str, Any]] = {"reserve_bytes": 800, "zero_fill": True}


@attrs.define
class Keeper:
    """Uses the log in a directory, and remembers what it was told is durable."""

    directory: Path
    acknowledged: Offset = 11
    tell: Callable[[Offset], object] = lambda offset: None
    """Is told of each acknowledgement."""
    logs: list[FileReplicatedLog] = attrs.Factory(list)
    """What was opened, closed since or not."""

    def open(self, **options: Any) -> FileReplicatedLog:
        """Open what is there, damaged or not."""
        self.logs.append(FileReplicatedLog.open(self.directory, segment_bytes=1_000, keep_damage=True, **options))
        return self.logs[-1]

    def close(self) -> None:
        """Close every log, as the owner of one does that has failed."""
        for log in self.logs:
            with contextlib.suppress(StorageError, OSError):
                log.close()

    def append(self, log: FileReplicatedLog, count: int = 1) -> None:
        """Append batches one by one, and make each of them durable."""
        for _ in range(count):
            log.append([EVER[log.end_offset]])
            self.acknowledged = max(self.acknowledged, log.flush())
            self.tell(self.acknowledged)

    def snapshot(self, log: FileReplicatedLog, offset: Offset) -> OffsetAndEpoch:
        """Write a snapshot and freeze it."""
        snapshot_id = _id(offset)
        sink = log.create_snapshot(snapshot_id)
        try:
            sink.write(snapshot_bytes(snapshot_id))
            sink.freeze()
        finally:
            sink.abort()
        return snapshot_id

    def spoil(self, name: str, position: int) -> None:
        """Let the disk damage a file, if it is there."""
        path = self.directory / name
        if path.exists():
            with path.open("r+b") as file:
                file.seek(position)
                file.write(b"????")

    def spoil_batch(self, offset: Offset) -> None:
        """Let the disk damage a record."""
        base = offset - offset % 3
        self.spoil(names.segment_name(base), (offset - base) * SIZE + 100)

    def fill(self, log: FileReplicatedLog) -> None:
        """Fetch what is missing, and what proves to be when it is read."""
        offset = log.start_offset
        while offset < log.end_offset or log.holes():
            while log.holes():
                begin, end = log.holes()[0].start_offset, log.holes()[0].end_offset
                assert log.write_repair(EVER[begin:end])
            try:
                offset = log.read(offset, 1)[-1].end_offset
            except CorruptBatchError:
                assert log.find_damage(offset) or log.start_offset > offset
                offset = log.start_offset


def _id(offset: Offset) -> OffsetAndEpoch:
    return OffsetAndEpoch(offset=offset, epoch=EVER[offset - 1].epoch)


def lived(keeper: Keeper, *, snapshots: tuple[Offset, ...] = (), deleting: Offset = 0, closed: bool = True) -> None:
    """Let a replica that has voted append eleven batches, and take some snapshots."""
    FileQuorumStateStore(keeper.directory).write(VOTE, kraft_version=0, voters=[1, 2, 3])
    log = keeper.open()
    keeper.append(log, 11)
    for offset in snapshots:
        keeper.snapshot(log, offset)
    if deleting:
        log.delete_before(_id(deleting))
        log.flush()
    if closed:
        log.close()


def why_bad(keeper: Keeper) -> str:
    """Open what is left, and return what is lost of what was acknowledged, or nothing; fill it, and go on."""
    vote = FileQuorumStateStore(keeper.directory).read()
    if vote is None or not (vote.amnesiac or vote == VOTE):
        return f"the vote is {vote}"
    log = keeper.open()
    why = _why_lost(keeper, log)
    if why:
        return why
    keeper.fill(log)
    keeper.append(log)
    log.close()
    log = keeper.open()
    if log.holes():
        return f"repaired, and {log.holes()} is missing again"
    why = _why_lost(keeper, log)
    log.close()
    return f"repaired, and {why}" if why else ""


def _why_lost(keeper: Keeper, log: FileReplicatedLog) -> str:
    if log.end_offset < keeper.acknowledged:
        return f"it ends at {log.end_offset}, and {keeper.acknowledged} was acknowledged"
    for snapshot_id in log.snapshots():
        try:
            read_snapshot(keeper.directory, snapshot_id)
        except CorruptBatchError as error:
            log.set_snapshot_aside(snapshot_id, str(error))
    if log.start_offset > 0 and not any(kept.offset >= log.start_offset for kept in log.snapshots()):
        return f"it begins at {log.start_offset} without a snapshot"
    for offset in range(log.start_offset, log.end_offset):
        if any(hole.start_offset <= offset < hole.end_offset for hole in log.holes()):
            continue
        try:
            found: Batch = log.read(offset, 1)[0]
        except CorruptBatchError:
            continue  # it says so, and will be fetched
        if bytes(found.data) != bytes(EVER[offset].data):
            return f"{found!r} stands at {offset}"
    return ""


# Snapshots ----------------------------------------------------------------------------------------


def _two_snapshots(keeper: Keeper) -> None:
    lived(keeper, snapshots=(4, 7), deleting=4)
    keeper.spoil(names.checkpoint_name(_id(7)), 30)


def damaged_snapshot(keeper: Keeper) -> None:
    """One is set aside at start, and an older one stands in; a newer one, while it runs; a full disk takes both."""
    log = keeper.open()
    assert log.snapshots() == (_id(4),)
    newer = keeper.snapshot(log, 8)
    keeper.spoil(names.checkpoint_name(newer), 30)
    log.set_snapshot_aside(newer, "a test")
    assert log.snapshots() == (_id(4),)
    with mock.patch.object(Space, "is_full", True):
        log.prepare_spare()
    keeper.append(log)
    log.close()


def _one_snapshot(keeper: Keeper) -> None:
    lived(keeper, snapshots=(7,), deleting=7)


def only_snapshot_set_aside(keeper: Keeper) -> None:
    """Nothing stands in for it: what it stood for is missing, and fetched."""
    log = keeper.open()
    keeper.spoil(names.checkpoint_name(_id(7)), 200)
    log.set_snapshot_aside(_id(7), "a test")
    assert log.holes() == (OffsetRange(0, 6),)
    keeper.fill(log)
    keeper.append(log)
    log.close()


def _no_snapshot(keeper: Keeper) -> None:
    _one_snapshot(keeper)
    (keeper.directory / names.checkpoint_name(_id(7))).unlink()


def snapshot_that_is_gone(keeper: Keeper) -> None:
    """So it is at a start."""
    log = keeper.open()
    assert log.holes() == (OffsetRange(0, 6),)
    keeper.fill(log)
    log.close()


# Segments -----------------------------------------------------------------------------------------


def _no_segment(keeper: Keeper) -> None:
    lived(keeper, closed=False)
    for path in keeper.directory.glob("*.log"):
        path.unlink()


def no_segment_left(keeper: Keeper) -> None:
    """All of the log is missing, and known to be as long as it was."""
    log = keeper.open()
    assert log.holes() == (OffsetRange(0, 11),)
    log.close()
    log = keeper.open()
    keeper.fill(log)
    keeper.append(log)
    log.close()


def _damage_below(offset: Offset, snapshot: Offset) -> Callable[[Keeper], None]:
    def prepare(keeper: Keeper) -> None:
        lived(keeper, snapshots=(snapshot,))
        keeper.spoil_batch(offset)

    return prepare


def begun_behind_damage(keeper: Keeper) -> None:
    """A snapshot has what is missing: the segment that grows is split behind it."""
    log = keeper.open()
    assert log.find_damage(9) == ()
    assert log.start_offset == 10
    keeper.append(log, 4)
    log.close()


def begun_amid_a_full_segment(keeper: Keeper) -> None:
    """So is one that is full."""
    log = keeper.open()
    assert log.find_damage(3) == ()
    assert log.start_offset == 5
    keeper.append(log)
    log.close()


def repaired_before_zeros(keeper: Keeper) -> None:
    """The segment that grows, and ends in zeros, is damaged and repaired."""
    log = keeper.open(**ZEROS)
    log.prepare_spare()
    keeper.append(log, 3)
    keeper.spoil_batch(12)
    assert log.find_damage(12) == (OffsetRange(12, 13),)
    keeper.fill(log)
    keeper.append(log)
    log.close()


def full_disk(keeper: Keeper) -> None:
    """The spare segment is given back, and made anew when there is space."""
    log = keeper.open(**ZEROS)
    log.prepare_spare()
    with mock.patch.object(Space, "is_full", True):
        log.prepare_spare()
    keeper.append(log)
    log.prepare_spare()
    keeper.append(log)
    log.close()


def _torn_without_sync_point(keeper: Keeper) -> None:
    lived(keeper)
    (keeper.directory / names.SYNC_POINT).unlink()
    with open(keeper.directory / names.segment_name(9), "ab") as file:
        file.write(EVER[11].data[:150])


def doubtful_end(keeper: Keeper) -> None:
    """Nothing tells whether the end was torn or damaged: at least one record is missing."""
    log = keeper.open()
    assert log.holes() == (OffsetRange(11, 12),)
    assert log.is_doubtful
    keeper.fill(log)
    keeper.append(log)
    log.close()


# The directory ------------------------------------------------------------------------------------

_IDENTITY: Final = uuid.UUID(int=12_345)


def _config(keeper: Keeper) -> RaftConfig:
    return RaftConfig(node_id=1, cluster_id="damages", directory=keeper.directory / "home", disk_reserve_bytes=0)


def _no_identity(keeper: Keeper) -> None:
    home, here = keeper.directory / "home", Endpoint("127.0.0.1", 9_093)
    format_directory(home, node_id=1, cluster_id="damages", directory_id=_IDENTITY, standalone=here, now_ms=0)
    opened = open_directory(_config(keeper))
    opened.elections.write(VOTE, kraft_version=1)
    opened.close()
    (home / names.META_PROPERTIES).unlink()
    keeper.spoil(f"home/{names.PARTITION_DIRECTORY}/{names.PARTITION_METADATA}", 3)


def lost_identity(keeper: Keeper) -> None:
    """Whose directory it is is known from the mirror; of which topic, from nowhere, for there is but one."""
    opened = open_directory(_config(keeper))
    keeper.logs.append(opened.log)
    assert opened.directory_id == _IDENTITY
    keeper.append(opened.log)
    opened.close()


def _why_not_identified(keeper: Keeper) -> str:
    for _ in range(2):
        opened = open_directory(_config(keeper))
        vote, end_offset = opened.elections.read(), opened.log.end_offset
        opened.close()
        if opened.directory_id != _IDENTITY or vote != VOTE or end_offset < keeper.acknowledged:
            return f"it opens as {opened.directory_id}, with vote {vote}, up to {end_offset}"
    return ""


@attrs.frozen
class Damage:
    """How a directory came to be damaged, what is done in it then, and what says whether that left it well."""

    prepare: Callable[[Keeper], None]
    live: Callable[[Keeper], None]
    why_bad: Callable[[Keeper], str] = why_bad
    acknowledged: Offset = 11


DAMAGES: Final[dict[str, Damage]] = {
    damage.live.__name__: damage
    for damage in (
        Damage(_two_snapshots, damaged_snapshot),
        Damage(_one_snapshot, only_snapshot_set_aside),
        Damage(_no_snapshot, snapshot_that_is_gone),
        Damage(_no_segment, no_segment_left),
        Damage(_damage_below(9, 10), begun_behind_damage),
        Damage(_damage_below(3, 5), begun_amid_a_full_segment),
        Damage(lived, repaired_before_zeros),
        Damage(lived, full_disk),
        Damage(_torn_without_sync_point, doubtful_end),
        Damage(_no_identity, lost_identity, why_bad=_why_not_identified, acknowledged=0),
    )
}
