"""Whatever a log goes through, the core's picture of it is that of whoever opens it, and judges others rightly."""

from __future__ import annotations

import attrs
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.consensus.log_view import Diverging, LogView, NeedsSnapshot, Valid
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.opening import view_of
from kraftlib.runtime.snapshots.writing import SnapshotPlan, plan_snapshot
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import Epoch, Offset, OffsetAndEpoch, OffsetRange
from tests.consensus.build import place, voter_set

CONFIG = RaftConfig(node_id=1, voters=tuple(StaticVoter(number, place(number)) for number in (1, 2)))


@attrs.define
class Life:
    """A log, the core's picture of it, and the epoch of each record that ever was in it."""

    log: MemoryReplicatedLog = attrs.field(factory=MemoryReplicatedLog)
    view: LogView = attrs.field(init=False)
    epochs: dict[Offset, Epoch] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.view = view_of(self.log, CONFIG)

    def append(self, count: int, later: int) -> None:
        self._append(encode_batch([b"x"] * count, timestamp_ms=0, **self._next(later)))

    def change_voters(self, count: int, later: int) -> None:
        records = [KRaftVersionRecord(kraft_version=1), voter_set(*range(1, count + 1)).to_record()]
        self._append(encode_control_batch(records, timestamp_ms=0, **self._next(later)))

    def flush(self, *_: int) -> None:
        self.view.flushed(self.log.flush(), self.view.log_version)
        assert self.view.flushed_offset == self.view.end_offset

    def truncate(self, back: int, _: int) -> None:
        least = max([self.log.start_offset, *(snapshot.offset for snapshot in self.log.snapshots())])
        end_offset = self.log.truncate(max(least, self.log.end_offset - back))
        self.view.truncate(end_offset)
        assert self.view.flushed_offset <= end_offset
        self.epochs = {offset: epoch for offset, epoch in self.epochs.items() if offset < end_offset}

    def snapshot(self, back: int, _: int) -> None:
        for offset in range(self.log.end_offset - back, self.log.start_offset, -1):
            if self.log.read(offset - 1, 1)[0].end_offset == offset:
                plan = plan_snapshot(self.log, offset=offset, high_watermark=offset, view=self.view)
                plan.write(self.log, [])
                self.view.add_snapshot(plan.snapshot_id)
                self.view.add_snapshot(plan.snapshot_id)  # once more is not twice
                return

    def retain(self, which: int, _: int) -> None:
        snapshots = self.log.snapshots()
        if snapshots:
            snapshot_id = snapshots[which % len(snapshots)]
            self.log.delete_before(snapshot_id)
            self.view.delete_before(snapshot_id)

    def install(self, beyond: int, later: int) -> None:
        snapshot_id = OffsetAndEpoch(offset=self.log.end_offset + beyond, epoch=self.view.last_epoch + later + 1)
        voters = voter_set(*range(1, beyond + 2)).to_record()
        SnapshotPlan(snapshot_id=snapshot_id, timestamp_ms=0, kraft_version=1, voters=voters).write(self.log, [])
        self.log.install_snapshot(snapshot_id)
        self.view.install(snapshot_id, [KRaftVersionRecord(kraft_version=1), voters])
        self.epochs = {snapshot_id.offset - 1: snapshot_id.epoch}
        assert self.view.flushed_offset == snapshot_id.offset

    def repair(self, count: int, later: int) -> None:
        """What was missing is there again, and records behind the old end with it."""
        self.flush()
        self.view.holes = [OffsetRange(self.view.start_offset, self.view.end_offset)]
        batch = encode_batch([b"x"] * count, timestamp_ms=0, **self._next(later))
        self.log.append([batch])
        self.log.flush()
        self._remember(batch)
        self.view.repaired((), self.log.end_offset, self.log.epoch_starts(), self._control_batches())
        assert self.view.flushed_offset == self.view.end_offset

    def adopt(self, back: int, _: int) -> None:
        """What was missing is replaced by a snapshot, and what is behind it stays."""
        self.snapshot(back, 0)
        snapshots = self.log.snapshots()
        if not snapshots:
            return
        snapshot_id, controls = snapshots[-1], self._control_batches()
        self.view.lose_snapshot(snapshot_id)
        assert snapshot_id not in self.view.snapshots
        self.view.lose_snapshot(snapshot_id)  # once more is nothing
        self.view.epoch_starts = list(self.log.epoch_starts())  # this log has lost nothing
        self.view.holes = [OffsetRange(0, snapshot_id.offset)]
        self.log.delete_before(snapshot_id)
        with SnapshotReader(self.log.open_snapshot(snapshot_id), epoch=snapshot_id.epoch) as reader:
            header = [
                KRaftVersionRecord(kraft_version=reader.kraft_version),
                *([reader.voters] if reader.voters else []),
            ]
        self.view.adopt(snapshot_id, header, (), controls)

    def _control_batches(self) -> list[Batch]:
        if self.log.start_offset == self.log.end_offset:
            return []
        return [batch for batch in self.log.read(self.log.start_offset, 1 << 20) if batch.is_control]

    def _next(self, later: int) -> dict[str, int]:
        return {"base_offset": self.log.end_offset, "epoch": max(1, self.view.last_epoch + later)}

    def _append(self, batch: Batch) -> None:
        self.log.append([batch])
        self.view.append([batch])
        self._remember(batch)

    def _remember(self, batch: Batch) -> None:
        self.epochs.update(dict.fromkeys(range(batch.base_offset, batch.end_offset), batch.epoch))

    def check(self) -> None:
        """Compare the picture with a new one, and ask it for every position that there could be."""
        view, found = self.view, view_of(self.log, CONFIG)
        for name in ("start_offset", "end_offset", "epoch_starts", "snapshots", "last_epoch", "latest_snapshot"):
            assert getattr(view, name) == getattr(found, name), name
        assert view.holes == []
        self.check_wholeness()
        assert view.voters.latest == found.voters.latest
        assert view.kraft_version.latest == found.kraft_version.latest
        for offset in range(view.start_offset, view.end_offset + 1):
            before = self.epochs.get(offset - 1, 0)
            assert view.epoch_before(offset) == before
            for epoch in range(1, view.last_epoch + 2):
                self.check_judgement(offset, epoch, before)
        for offset in range(view.start_offset):
            if view.latest_snapshot is not None:
                assert view.validate(offset, 1) == NeedsSnapshot(view.latest_snapshot)
        assert not isinstance(view.validate(view.end_offset + 1, view.last_epoch), Valid)

    def check_wholeness(self) -> None:
        """Ask the picture which snapshots would replace just what the log had when it was whole."""
        view = self.view
        view.holes = [OffsetRange(view.start_offset + 1, view.end_offset - 1)]
        for offset in range(view.end_offset + 3):
            for epoch in range(1, view.last_epoch + 1):
                whole = view.start_offset < offset <= view.end_offset and self.epochs[offset - 1] == epoch
                amid = view.start_offset + 1 < offset < view.end_offset - 1
                snapshot_id = OffsetAndEpoch(offset=offset, epoch=epoch)
                assert view.is_whole_before(snapshot_id) == (whole and not amid)
                is_missing = view.start_offset + 1 < offset <= view.end_offset - 1
                assert view.may_begin_at(snapshot_id) == (whole or is_missing)
        view.holes = []

    def check_judgement(self, offset: Offset, epoch: Epoch, before: Epoch) -> None:
        """Judge a log that ends at `offset` with a record of `epoch`, where ours has one of `before`."""
        judgement = self.view.validate(offset, epoch)
        # Epochs only rise, so one that ends before `offset` has nothing there, and one that never was has nothing.
        last = max((at for at, known in self.epochs.items() if known == epoch), default=None)
        earliest = self.view.earliest_snapshot
        if epoch == before and earliest is not None and epoch < earliest.epoch:
            # As Kafka: whatever the log still holds from before its oldest snapshot, that is sent instead.
            assert judgement == NeedsSnapshot(self.log.snapshots()[-1])
        elif epoch == before:
            assert isinstance(judgement, Valid)
        elif offset > 0 and (last is None or last + 1 < offset):
            assert isinstance(judgement, Diverging | NeedsSnapshot)
            if isinstance(judgement, Diverging) and last is not None:
                assert judgement.end == OffsetAndEpoch(offset=last + 1, epoch=epoch)


STEPS = st.tuples(
    st.sampled_from(
        ("append", "append", "change_voters", "flush", "truncate", "snapshot", "retain", "install", "repair", "adopt")
    ),
    st.integers(1, 4),
    st.integers(0, 2),
)


@given(st.lists(STEPS, max_size=14))
@example([("install", 2, 0), ("change_voters", 4, 0), ("retain", 1, 0), ("truncate", 1, 0)])
@example([("change_voters", 3, 0), ("snapshot", 1, 0), ("change_voters", 4, 0), ("retain", 1, 0), ("truncate", 2, 0)])
def test_the_picture_is_that_of_whoever_opens_the_log(steps: list[tuple[str, int, int]]) -> None:
    life = Life()
    for name, first, second in steps:
        getattr(life, name)(first, second)
        life.check()
