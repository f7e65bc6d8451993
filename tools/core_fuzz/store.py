"""The disk of one replica of the core fuzzer: the log, its holes, snapshots, a download and the election.

It keeps the promises of `kraftlib.storage` and nothing else of it: records are whole batches in a list, and a snapshot
is a few bytes and the voters in its header. Lost batches stay in the list, where no one may read them.
"""

from __future__ import annotations

import hashlib
import random as chance
from collections.abc import Iterable, Sequence

import attrs

from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.roles import Download
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import ensure
from kraftlib.records.batch import Batch
from kraftlib.storage.damage.missing import keep_last_epoch
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.types import (
    BOOTSTRAP_SNAPSHOT,
    ElectionState,
    Epoch,
    EpochStart,
    Offset,
    OffsetAndEpoch,
    OffsetRange,
)


@attrs.frozen
class StoredSnapshot:
    """A snapshot: its bytes stand for the state, `controls` are the control records of its header."""

    data: bytes
    controls: tuple[object, ...]


@attrs.define
class Incoming:
    """A download, under way or interrupted."""

    snapshot_id: OffsetAndEpoch
    size: int
    data: bytes = b""


@attrs.frozen
class PendingFlush:
    """A flush that was asked for: the end that it makes durable, and the version of the log."""

    end_offset: Offset
    log_version: int


class CoreStore:
    """The disk of one replica. It outlives the lives of its replica; `crash` takes what was not durable."""

    def __init__(self, bootstrap: StoredSnapshot | None = None) -> None:
        """With `bootstrap`, the disk was formatted for a dynamic quorum: that is the checkpoint with its voters."""
        self.batches: list[Batch] = []
        self.start_offset: Offset = 0
        self.snapshots: dict[OffsetAndEpoch, StoredSnapshot] = {}
        if bootstrap is not None:
            self.snapshots[BOOTSTRAP_SNAPSHOT] = bootstrap
        self.lost: tuple[OffsetAndEpoch, StoredSnapshot] | None = None
        """The newest snapshot that was set aside, with its header."""
        self.holes: list[OffsetRange] = []
        self.latent: list[OffsetRange] = []
        """Holes that no one has come upon yet."""
        self.incoming: Incoming | None = None
        self.election: ElectionState | None = None
        self.flushed_offset: Offset = self.end_offset
        self.flushes: list[PendingFlush] = []
        self.told_end_offset: Offset = 0
        """The end of the log before it was lost: others may count what it has acknowledged of it."""
        self.told: dict[Offset, Epoch] = {}
        """The batches that were lost with the end of the log."""
        self._fetched: list[Batch] = []
        """The batches that a repair has written beside the log."""

    # --- what is there -----------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> Offset:
        """One past the last record that was ever appended and not truncated."""
        holes_end = max((hole.end_offset for hole in (*self.holes, *self.latent)), default=0)
        return max(self.batches[-1].end_offset if self.batches else 0, self.start_offset, holes_end)

    @property
    def end(self) -> OffsetAndEpoch:
        """Where the log ends, and the epoch before it, whatever was lost since."""
        offset = self.end_offset
        return OffsetAndEpoch(offset=offset, epoch=self.epoch_before(offset))

    @property
    def repaired_to(self) -> Offset:
        """The end of the log up to its first hole, with the batches of a repair."""
        return self._fetched[-1].end_offset if self._fetched else self.holes[0].start_offset

    def epoch_before(self, offset: Offset) -> Epoch:
        """Return the epoch of the record before `offset`; -1, if this disk cannot tell."""
        for batch in reversed(self.batches):
            if batch.base_offset < offset:
                return batch.epoch
        known = [snapshot_id for snapshot_id in self.snapshots if snapshot_id.offset == offset]
        if self.lost is not None and self.lost[0].offset == offset:
            known.append(self.lost[0])
        return max((snapshot_id.epoch for snapshot_id in known), default=0 if offset == 0 else -1)

    @property
    def is_damaged(self) -> bool:
        """Whether records that were durable are missing, noticed or not."""
        return bool(self.holes or self.latent)

    @property
    def is_amnesiac(self) -> bool:
        """Whether the election is known to be lost."""
        return self.election is not None and self.election.amnesiac

    def epoch_starts(self) -> Sequence[EpochStart]:
        """Return the epochs of the log and where they start."""
        epochs = EpochTable()
        for batch in self.batches:
            if batch.epoch != epochs.latest_epoch:
                epochs.assign(batch.epoch, batch.base_offset)
        if self.lost is not None and self.is_damaged:
            keep_last_epoch(epochs, self.lost[0], self.end_offset)
        return epochs.starts()

    def readable(self, offset: Offset) -> list[Batch]:
        """Return the batches from `offset` on, up to a hole; nothing inside of one."""
        missing = [*self.holes, *self.latent]
        if any(hole.start_offset <= offset < hole.end_offset for hole in missing):
            return []
        limit = min((hole.start_offset for hole in missing if hole.start_offset >= offset), default=self.end_offset)
        return [batch for batch in self.batches if batch.end_offset > offset and batch.base_offset < limit]

    def control_batches(self) -> tuple[Batch, ...]:
        """Return the control batches that are known. Damage that was not come upon yet hides none of them: they
        are noted beside the log."""
        return tuple(batch for batch in self.batches if batch.is_control and not _is_in(batch, self.holes))

    def _is_needed(self, offset: Offset) -> bool:
        """Whether only the header of a lost snapshot that ended at `offset` tells the voters there."""
        return offset <= self.end_offset and any(hole.start_offset < offset for hole in self.holes)

    def view(self, static_voters: VoterSet | None) -> LogView:
        """Describe the log to a core that starts, as `kraftlib.runtime.opening` does."""
        view = LogView.build(
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            epoch_starts=self.epoch_starts(),
            snapshots=sorted(self.snapshots),
            static_voters=static_voters,
        )
        stored = sorted(self.snapshots.items())
        whole = [kept for kept in stored if kept[0].offset <= self.end_offset]
        newest = whole[-1] if whole else None
        lost = self.lost if self.lost is not None and self._is_needed(self.lost[0].offset) else None
        if lost is not None and (newest is None or newest[0] < lost[0]):
            newest = lost
        elif newest is None and self.holes and stored:
            newest = stored[0]
        if newest is not None:
            view.observe_snapshot(newest[0], newest[1].controls)
        first = max(self.start_offset, view.header_offset)
        view.holes = list(self.holes)
        for batch in self.control_batches():
            if batch.base_offset >= first:
                view.observe(batch)
        return view

    def kept_download(self) -> Download | None:
        """Return what an earlier life has downloaded."""
        incoming = self.incoming
        if incoming is None or not incoming.data:
            return None
        position = len(incoming.data)
        return Download(snapshot_id=incoming.snapshot_id, source_epoch=None, position=position, size=incoming.size)

    # --- the log -----------------------------------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch]) -> None:
        """Append at the end."""
        for batch in batches:
            ensure(batch.base_offset == self.end_offset, f"{batch} does not continue {self.end}")
            self.batches.append(batch)

    def catch_up(self) -> None:
        """Make durable what was asked for: the disk does one thing after the other, and a write is about to wait."""
        for flush in self.flushes:
            self.flushed_offset = max(self.flushed_offset, min(flush.end_offset, self.end_offset))

    def truncate(self, end_offset: Offset) -> list[Batch]:
        """Drop what reaches beyond `end_offset`; the rest is durable. Return what was dropped."""
        dropped = [batch for batch in self.batches if batch.end_offset > end_offset]
        self.batches = [batch for batch in self.batches if batch.end_offset <= end_offset]
        # Only whole batches go; a hole that no one has come upon is cut like what stood there.
        limit = self.batches[-1].end_offset if dropped and self.batches else end_offset
        self.holes = [hole for hole in self.holes if hole.start_offset < end_offset]
        self.latent = [
            OffsetRange(hole.start_offset, min(hole.end_offset, limit))
            for hole in self.latent
            if hole.start_offset < limit
        ]
        self._fetched = []
        self.flushed_offset = self.end_offset
        return dropped

    def has_passed(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether the log begins behind this snapshot, or at its offset with another one."""
        start_offset = self.start_offset
        begins_with_another = any(kept.offset == start_offset and kept != snapshot_id for kept in self.snapshots)
        return snapshot_id.offset < start_offset or (snapshot_id.offset == start_offset and begins_with_another)

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Let the log begin at the end of this stored snapshot."""
        ensure(snapshot_id in self.snapshots, f"there is no snapshot {snapshot_id} to stand in for the log")
        ensure(snapshot_id.offset <= self.end_offset, f"snapshot {snapshot_id} is beyond the end {self.end}")
        self.start_offset = max(self.start_offset, snapshot_id.offset)
        self.batches = [batch for batch in self.batches if batch.base_offset >= self.start_offset]
        self.snapshots = {kept: data for kept, data in self.snapshots.items() if kept >= snapshot_id}
        self.holes, self.latent = self._behind(self.holes), self._behind(self.latent)
        self._fetched = []

    def _behind(self, holes: Sequence[OffsetRange]) -> list[OffsetRange]:
        start = self.start_offset
        return [
            OffsetRange(max(hole.start_offset, start), hole.end_offset) for hole in holes if hole.end_offset > start
        ]

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def write_chunk(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes, *, size: int) -> None:
        """Add bytes to the download; position 0 begins it anew."""
        if position == 0:
            self.incoming = Incoming(snapshot_id, size)
        incoming = self._incoming_of(snapshot_id)
        ensure(len(incoming.data) == position, f"a chunk at {position} does not continue {len(incoming.data)} bytes")
        incoming.data += data

    def digest(self, snapshot_id: OffsetAndEpoch, position: int) -> bytes:
        """Return the hash of the first bytes of the download; nothing, if that is another one."""
        incoming = self.incoming
        if incoming is None or incoming.snapshot_id != snapshot_id:
            return b""
        return hashlib.sha256(incoming.data[:position]).digest()

    def downloaded(self, snapshot_id: OffsetAndEpoch) -> bytes:
        """Return the bytes of the download."""
        return self._incoming_of(snapshot_id).data

    def _incoming_of(self, snapshot_id: OffsetAndEpoch) -> Incoming:
        incoming = self.incoming
        ensure(incoming is not None and incoming.snapshot_id == snapshot_id, f"no download of {snapshot_id}")
        return incoming  # type: ignore[return-value]  # just ensured

    def install(self, snapshot_id: OffsetAndEpoch, snapshot: StoredSnapshot) -> None:
        """Let a downloaded snapshot take the place of the whole log."""
        self.incoming = None
        self.snapshots = {kept: data for kept, data in self.snapshots.items() if kept >= snapshot_id}
        self.snapshots[snapshot_id] = snapshot
        self.batches, self.holes, self.latent, self._fetched = [], [], [], []
        self.start_offset = self.flushed_offset = snapshot_id.offset

    def adopt(self, snapshot_id: OffsetAndEpoch, snapshot: StoredSnapshot) -> None:
        """Let a downloaded snapshot stand in for what is before its end."""
        self.incoming = None
        self.snapshots[snapshot_id] = snapshot
        self.delete_before(snapshot_id)
        self.flushed_offset = self.end_offset

    def set_aside(self, snapshot_id: OffsetAndEpoch) -> ev.SnapshotLost:
        """Lose a stored snapshot; records that are nowhere else are a hole from now on."""
        snapshot = self.snapshots.pop(snapshot_id, None)
        if snapshot is not None:
            if self.lost is None or not self.is_damaged or self.lost[0] < snapshot_id:
                self.lost = (snapshot_id, snapshot)
            start_offset = self.start_offset
            if start_offset > 0 and not any(kept.offset >= start_offset for kept in self.snapshots):
                self.holes = [OffsetRange(0, start_offset), *self.holes]
                self.start_offset = 0
        return ev.SnapshotLost(
            snapshot_id=snapshot_id,
            start_offset=self.start_offset,
            epoch_starts=tuple(self.epoch_starts()),
            holes=tuple(self.holes),
        )

    # --- damage ------------------------------------------------------------------------------------------------------

    def damage(self, random: chance.Random, *, latent: bool) -> OffsetRange | None:
        """Lose some records that were durable; None, if there are none, or some are missing already.

        Often the last ones below where an epoch begins: there logs diverge, and are cut.
        """
        found = [batch for batch in self.batches if batch.end_offset <= self.flushed_offset]
        if self.is_damaged or not found:
            return None
        first = random.randrange(len(found))
        last = min(len(found) - 1, first + random.randrange(4))
        ends = [place for place in range(len(found) - 1) if found[place].epoch < found[place + 1].epoch]
        if ends and random.random() < 0.3:
            last = ends[-1]
            first = max(0, last - random.randrange(3))
        hole = OffsetRange(found[first].base_offset, found[last].end_offset)
        (self.latent if latent else self.holes).append(hole)
        return hole

    def lose_before(self, random: chance.Random, end_offset: Offset) -> bool:
        """Lose the last records that were durable below this offset; whether there were any, and nothing is missing."""
        found = [batch for batch in self.batches if batch.end_offset <= min(end_offset, self.flushed_offset)]
        if self.is_damaged or not found or found[-1].end_offset != end_offset:
            return False
        first = found[max(0, len(found) - random.randint(1, 3))]
        self.latent.append(OffsetRange(first.base_offset, end_offset))
        return True

    def come_upon_damage(self) -> ev.StorageFailed:
        """Find out what is missing; a whole snapshot stands in where it can."""
        self.holes = sorted([*self.holes, *self.latent], key=lambda hole: hole.start_offset)
        self.latent = []
        newest = max(self.snapshots, default=None)
        begins_at = None
        if self.holes and newest is not None and self.holes[0].start_offset < newest.offset <= self.end_offset:
            begins_at = newest
            self.delete_before(newest)
        return ev.StorageFailed(tuple(self.holes), begins_at)

    def forget_tail(self, random: chance.Random) -> None:
        """Lose the end of the log, durable or not, in a way that opening notices: it knows no more what it has told."""
        committed_floor = max([self.start_offset, *(snapshot_id.offset for snapshot_id in self.snapshots)])
        places = [batch.base_offset for batch in self.batches if batch.base_offset >= committed_floor]
        if places and not self.is_damaged:
            told = self.told_end_offset if self.is_amnesiac else 0
            self.told_end_offset = max(told, self.end_offset)
            dropped = self.truncate(random.choice(places[-6:]))
            kept = self.told if self.is_amnesiac else {}
            self.told = {**kept, **{batch.base_offset: batch.epoch for batch in dropped}}
        self.lose_election(random)

    def lose_election(self, random: chance.Random) -> None:
        """Lose the election file: the next life knows that it has forgotten something. The storage says the epoch of
        the log in its place, and a log that is doubtful as a whole none."""
        starts = self.epoch_starts()
        newest = max((snapshot_id.epoch for snapshot_id in self.snapshots), default=0)
        epoch = max(starts[-1].epoch if starts else 0, newest)
        self.election = ElectionState(epoch=random.choice((epoch, epoch, 0)), amnesiac=True)

    def write_repair(self, batches: Sequence[Batch]) -> ev.RepairWritten | ev.Repaired:
        """Put fetched batches into the first hole; swap them in once it is full."""
        hole = self.holes[0]
        if batches[0].base_offset == hole.start_offset:
            self._fetched = []
        expected = self._fetched[-1].end_offset if self._fetched else hole.start_offset
        ensure(batches[0].base_offset == expected, f"a repair goes on at {expected}, not at {batches[0].base_offset}")
        self._fetched += batches
        end_offset = self._fetched[-1].end_offset
        if end_offset < hole.end_offset:
            return ev.RepairWritten(end_offset=end_offset, epoch=self._fetched[-1].epoch)
        before = [batch for batch in self.batches if batch.end_offset <= hole.start_offset]
        behind = [batch for batch in self.batches if batch.base_offset >= end_offset]
        self.batches = [*before, *self._fetched, *behind]
        self.holes, self._fetched = self.holes[1:], []
        self.flushed_offset = self.end_offset
        return ev.Repaired(
            holes=tuple(self.holes),
            end_offset=self.end_offset,
            epoch_starts=tuple(self.epoch_starts()),
            control_batches=self.control_batches(),
        )

    def give_up_repair(self) -> None:
        """Forget what was fetched for the first hole."""
        self._fetched = []

    def crash(self, random: chance.Random) -> None:
        """Lose power: of what was not flushed any prefix of whole batches may be there."""
        durable = sum(1 for batch in self.batches if batch.end_offset <= self.flushed_offset)
        kept = durable if random.random() < 0.7 else random.randint(durable, len(self.batches))
        del self.batches[kept:]
        self.flushed_offset = self.end_offset
        self.flushes, self._fetched = [], []


def _is_in(batch: Batch, holes: Iterable[OffsetRange]) -> bool:
    return any(hole.start_offset <= batch.base_offset < hole.end_offset for hole in holes)
