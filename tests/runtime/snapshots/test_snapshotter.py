"""Snapshots are taken by themselves when it is time, from a state that stands still, and beside the loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.consensus.log_view import LogView
from kraftlib.errors import ConfigError, CorruptBatchError
from kraftlib.records.batch import encode_batch
from kraftlib.records.serde import JsonSerde
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.committed import CommittedBatch, CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.snapshots.snapshotter import Snapshotter, can_snapshot
from kraftlib.runtime.snapshots.writing import plan_snapshot
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import OffsetAndEpoch
from tests.runtime.fakes import ManualDisk


class Numbers(StateMachine):
    def __init__(self) -> None:
        self.values: list[int] = []

    def apply(self, record: CommittedRecord) -> Any:
        self.values.append(record.value)

    def snapshot(self) -> Iterable[Any]:
        return (value for value in self.values)


class Stubborn(Numbers):
    def snapshot(self) -> Iterable[Any]:
        raise RuntimeError("not now")


class Rig:
    def __init__(self, machine: StateMachine | None = None, **config: Any) -> None:
        limits = {"snapshot_interval_bytes": 0, "snapshot_interval_ms": 0}
        self.log = MemoryReplicatedLog()
        self.machine = machine or Numbers()
        self.background = ManualDisk()
        self.now_ms = 0
        self.known_from = 0
        self.created: list[OffsetAndEpoch] = []
        self.snapshotter = Snapshotter(
            RaftConfig(node_id=1, **{**limits, **config}),
            self.log,
            self.machine,
            serde=JsonSerde(),
            background=self.background,
            plan=lambda offset: plan_snapshot(
                self.log, offset=offset, high_watermark=self.log.end_offset, view=LogView.build()
            ),
            applied_offset=lambda: self.log.end_offset,
            on_created=self.created.append,
            clock=lambda: self.now_ms,
            known_from=lambda: self.known_from,
        )

    def apply(self, *values: int) -> None:
        data = [JsonSerde().to_bytes(value) for value in values]
        batch = encode_batch(data, timestamp_ms=5, base_offset=self.log.end_offset, epoch=1)
        self.log.append([batch])
        given = CommittedBatch(batch, JsonSerde())
        for record in given.records:
            self.machine.apply(record)
        self.snapshotter.applied([given])

    def values(self, snapshot_id: OffsetAndEpoch) -> list[int]:
        with SnapshotReader(self.log.open_snapshot(snapshot_id)) as reader:
            return [int(value) for batch in reader.batches() for value in batch.values()]


def test_no_snapshot_is_taken_before_the_voters_are_known() -> None:
    """The state machine is behind a snapshot whose header told them, and which was lost since."""
    rig = Rig(snapshot_interval_records=1)
    rig.known_from = 3
    rig.apply(1, 2)
    rig.snapshotter.renew()
    assert not rig.background.jobs
    rig.apply(3)
    rig.background.finish_all()

    assert rig.created == [OffsetAndEpoch(epoch=1, offset=3)]


def test_a_snapshot_is_of_the_moment_and_not_of_when_it_is_written() -> None:
    rig = Rig(snapshot_interval_records=3)
    rig.apply(1, 2)
    assert not rig.background.jobs
    rig.apply(3, 4)
    rig.apply(5, 6)
    assert rig.created == []
    rig.background.finish_all()

    assert rig.created == [OffsetAndEpoch(offset=4, epoch=1)]
    assert rig.values(rig.created[0]) == [1, 2, 3, 4]


def test_only_one_is_written_at_a_time_and_what_came_meanwhile_counts_for_the_next() -> None:
    rig = Rig(snapshot_interval_records=2)
    for value in range(6):
        rig.apply(value)
    assert len(rig.background.jobs) == 1
    rig.background.finish_all()  # nothing more is applied, and nobody looks: the end of the first one begins the next
    rig.background.finish_all()

    assert [snapshot.offset for snapshot in rig.created] == [2, 6]


def test_bytes_and_time_call_for_one_too_but_only_if_something_was_applied() -> None:
    rig = Rig(snapshot_interval_bytes=150)
    rig.apply(1)
    assert not rig.background.jobs
    rig.apply(2)
    rig.apply(3)
    assert len(rig.background.jobs) == 1
    rig = Rig(snapshot_interval_ms=100)
    rig.now_ms = 500
    rig.snapshotter.look()
    assert not rig.background.jobs, "nothing was applied"
    rig.apply(1)
    assert len(rig.background.jobs) == 1
    rig.background.finish_all()
    rig.apply(2)
    rig.now_ms = 599
    rig.snapshotter.look()
    assert not rig.background.jobs
    rig.now_ms = 600
    rig.snapshotter.look()
    assert len(rig.background.jobs) == 1


def test_a_state_machine_that_cannot_costs_the_snapshot_only(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(Stubborn(), snapshot_interval_records=1)
    rig.apply(1)
    assert "no snapshot was taken: not now" in caplog.text
    assert not rig.background.jobs


def test_one_without_snapshots_is_warned_of_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Plain(StateMachine):
        def apply(self, record: CommittedRecord) -> Any:
            return None

    rig = Rig(Plain(), snapshot_interval_records=1)
    assert "Plain has no snapshot()" in caplog.text
    rig.apply(1)
    assert not rig.background.jobs
    assert not can_snapshot(None)


def test_a_snapshot_that_reads_back_wrong_is_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.apply(1)
    outcomes: list[BaseException | None] = []
    rig.snapshotter.create(lambda snapshot_id, error: outcomes.append(error), None, None)
    monkeypatch.setattr(rig.log, "store_snapshot", lambda snapshot_id, data: MemoryReplicatedLog.store_snapshot(
        rig.log, snapshot_id, data[:-3]))  # fmt: skip
    rig.background.finish_all()

    assert isinstance(outcomes[0], CorruptBatchError)
    assert rig.created == []


def test_values_by_hand_need_an_offset_that_fits() -> None:
    rig = Rig()
    rig.apply(1)
    rig.snapshotter.create(lambda *_: None, iter([b"7", b"8"]), 1)
    rig.background.finish_all()
    assert rig.values(rig.created[0]) == [7, 8]
    with pytest.raises(ConfigError, match="cannot end at offset 2"):
        rig.snapshotter.create(lambda *_: None, [], 2)
