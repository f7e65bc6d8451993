"""A download counts only as a whole; a snapshot is planned before the loop goes on and written beside it."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.errors import ConfigError, RecordTooLargeError
from kraftlib.records.batch import encode_batch
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.snapshots.writing import plan_snapshot
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaKey

SNAPSHOT = OffsetAndEpoch(epoch=2, offset=10)
VOTERS = VoterSet.of([Voter(key=ReplicaKey(1, UUID(int=500)), endpoints={"CONTROLLER": Endpoint("host", 9)})])


def filled_log() -> MemoryReplicatedLog:
    """Six batches of two records, in the epochs 1 and 2."""
    log = MemoryReplicatedLog()
    for base in range(0, 12, 2):
        log.append([encode_batch([b"a", b"b"], timestamp_ms=100 + base, base_offset=base, epoch=1 + base // 6)])
    return log


@pytest.fixture
def log() -> MemoryReplicatedLog:
    return filled_log()


# Of our own -----------------------------------------------------------------------------------------------------------


def view(log: MemoryReplicatedLog) -> LogView:
    return LogView.build(end_offset=log.end_offset, epoch_starts=log.epoch_starts())


def test_a_planned_snapshot_is_written_with_place_and_time_of_its_last_record(log: MemoryReplicatedLog) -> None:
    plan = plan_snapshot(log, offset=8, high_watermark=12, view=view(log))
    plan.write(log, [b"x", b"y"])

    assert plan.snapshot_id == OffsetAndEpoch(epoch=2, offset=8)
    assert list(log.snapshots()) == [plan.snapshot_id]
    with SnapshotReader(log.open_snapshot(plan.snapshot_id), epoch=2) as reader:
        assert reader.header.last_contained_log_timestamp == 106
        assert [value for batch in reader.batches() for value in batch.values()] == [b"x", b"y"]


def test_a_dynamic_quorum_names_its_voters_as_they_were(log: MemoryReplicatedLog) -> None:
    seen = view(log)
    seen.kraft_version.add(1, 1)
    seen.voters.add(2, VOTERS)
    seen.voters.add(9, VoterSet())
    plan = plan_snapshot(log, offset=8, high_watermark=12, view=seen)

    assert plan.kraft_version == 1
    assert plan.voters is not None
    assert VoterSet.from_record(plan.voters) == VOTERS


@pytest.mark.parametrize(("offset", "message"), [(0, "from 1 to 10"), (12, "from 1 to 10"), (7, "in the midst of")])
def test_a_snapshot_ends_at_the_end_of_a_committed_batch(log: MemoryReplicatedLog, offset: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_snapshot(log, offset=offset, high_watermark=10, view=view(log))


def test_a_snapshot_does_not_end_where_the_voters_are_not_known(log: MemoryReplicatedLog) -> None:
    """The newest snapshot told them at the start; the log reaches back further, and the state machine may, too."""
    seen = view(log)
    seen.observe_snapshot(OffsetAndEpoch(epoch=2, offset=8), [KRaftVersionRecord(kraft_version=1), VOTERS.to_record()])

    with pytest.raises(ConfigError, match="take 8 or more"):
        plan_snapshot(log, offset=6, high_watermark=12, view=seen)
    assert plan_snapshot(log, offset=8, high_watermark=12, view=seen).voters == VOTERS.to_record()


def test_a_snapshot_does_not_end_beyond_a_log_that_has_lost_what_was_committed(log: MemoryReplicatedLog) -> None:
    log.truncate(8)
    with pytest.raises(ConfigError, match="from 1 to 8"):
        plan_snapshot(log, offset=10, high_watermark=12, view=view(log))


def test_a_snapshot_that_cannot_be_written_leaves_nothing(log: MemoryReplicatedLog) -> None:
    plan = plan_snapshot(log, offset=8, high_watermark=12, view=view(log))
    with pytest.raises(RecordTooLargeError):
        plan.write(log, [b"x" * (9 << 20)])
    assert list(log.snapshots()) == []
