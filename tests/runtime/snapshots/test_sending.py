"""A snapshot leaves only once it is known to be whole, and what others ask for is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlib.consensus import actions as act
from kraftlib.runtime.disk import InlineDisk
from kraftlib.runtime.snapshots.checks import SnapshotChecks
from kraftlib.runtime.snapshots.sending import HASHES_MAX, SnapshotSender
from kraftlib.runtime.snapshots.transfer import LogSnapshots
from kraftlib.storage import names
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotResponse
from tests.runtime.fakes import ManualDisk, snapshot_bytes
from tests.runtime.snapshots.test_writing import SNAPSHOT, filled_log


@pytest.fixture
def log() -> MemoryReplicatedLog:
    return filled_log()


def response() -> FetchSnapshotResponse:
    partition = FetchSnapshotResponse.PartitionSnapshot(
        index=0,
        snapshot_id=FetchSnapshotResponse.SnapshotId(end_offset=10, epoch=2),
        current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=3),
        position=4,
    )
    return FetchSnapshotResponse(topics=(FetchSnapshotResponse.TopicSnapshot(name="t", partitions=(partition,)),))


def chunk(log: MemoryReplicatedLog, position: int, max_bytes: int) -> FetchSnapshotResponse.PartitionSnapshot:
    action = act.SendSnapshotChunk(1, response(), SNAPSHOT, position, max_bytes)
    return SnapshotSender(log).chunk(action).topics[0].partitions[0]


def test_a_chunk_brings_size_and_bytes_and_keeps_the_rest(log: MemoryReplicatedLog) -> None:
    log.store_snapshot(SNAPSHOT, b"0123456789")
    partition = chunk(log, 4, 3)

    assert (partition.size, bytes(partition.unaligned_records), partition.error_code) == (10, b"456", 0)
    assert (partition.position, partition.current_leader.leader_epoch) == (4, 3)


def test_a_position_outside_the_file_and_a_snapshot_that_is_gone_are_errors(log: MemoryReplicatedLog) -> None:
    assert chunk(log, 0, 3).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    log.store_snapshot(SNAPSHOT, b"0123456789")
    assert chunk(log, 10, 3).error_code == ErrorCode.POSITION_OUT_OF_RANGE


# From the leader ------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_of_what_is_damaged(tmp_path: Path) -> None:
    """It is read to its end before its first byte leaves."""
    stored = FileReplicatedLog.open(tmp_path)
    sink = stored.create_snapshot(SNAPSHOT)
    sink.write(snapshot_bytes(b"x" * 100)[:-10])
    sink.freeze()
    damaged: list[OffsetAndEpoch] = []
    checks = SnapshotChecks(
        stored, background=InlineDisk(), on_damage=lambda snapshot_id, reason: damaged.append(snapshot_id)
    )
    snapshots = SnapshotSender(stored, checks=checks)
    action = act.SendSnapshotChunk(1, response(), SNAPSHOT, 0, 10)
    answers: list[Any] = []
    snapshots.when_checked(action, lambda: answers.append(snapshots.chunk(action).topics[0].partitions[0]))
    assert damaged == [SNAPSHOT]
    assert [answer.error_code for answer in answers] == [ErrorCode.SNAPSHOT_NOT_FOUND]

    lost = LogSnapshots(stored, checks=checks).set_aside(act.SetSnapshotAside(SNAPSHOT, "cut"))
    assert (lost.snapshot_id, lost.start_offset, lost.holes) == (SNAPSHOT, 0, ())
    assert list(stored.snapshots()) == []
    stored.close()


class Sender:
    """A snapshot of several chunks in a real directory; the check reads it when it is told to."""

    def __init__(self, path: Path) -> None:
        self.log = FileReplicatedLog.open(path)
        sink = self.log.create_snapshot(SNAPSHOT)
        sink.write(snapshot_bytes(*[bytes([value]) * 200 for value in range(20)]))
        sink.freeze()
        self.path = path / names.checkpoint_name(SNAPSHOT)
        self.disk = ManualDisk()
        self.snapshots = SnapshotSender(
            self.log, checks=SnapshotChecks(self.log, background=self.disk, on_damage=lambda snapshot_id, reason: None)
        )
        self.codes: list[int] = []

    def ask(self, position: int, *, replica_id: int = 2) -> None:
        action = act.SendSnapshotChunk(1, response(), SNAPSHOT, position, 300, replica_id)

        def send() -> None:
            self.codes.append(self.snapshots.chunk(action).topics[0].partitions[0].error_code)

        self.snapshots.when_checked(action, send)


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[Sender]:
    sender = Sender(tmp_path)
    yield sender
    sender.log.close()


def test_a_request_that_is_repeated_during_the_check_causes_no_second_one(sender: Sender) -> None:
    """The check of a large snapshot outlasts the request timeout, and the follower asks for position 0 again."""
    for _ in range(3):
        sender.ask(0)
    assert (len(sender.disk.jobs), sender.codes) == (1, [])
    sender.disk.finish()
    sender.ask(0)  # the follower had given up the last one as well
    sender.ask(300)
    sender.ask(0, replica_id=3)

    assert sender.codes == [ErrorCode.NONE] * 6
    assert len(sender.disk.jobs) == 0


@pytest.mark.parametrize("reached", [0, 300], ids=["in the first chunk", "in the second"])
def test_a_replica_that_begins_anew_gets_nothing_before_the_snapshot_was_read_again(
    reached: int, sender: Sender
) -> None:
    """It has refused what it got: the file is damaged since its check."""
    sender.ask(0)
    sender.disk.finish()
    for position in range(0, reached + 1, 300):
        sender.ask(position)
    sender.path.write_bytes(sender.path.read_bytes()[:-20])
    sender.codes.clear()

    sender.ask(0)
    sender.ask(0)
    assert (len(sender.disk.jobs), sender.codes) == (1, [])
    sender.disk.finish()
    assert sender.codes == [ErrorCode.SNAPSHOT_NOT_FOUND] * 2


def test_hashes_for_others_wait_for_the_background_in_a_bounded_number(log: MemoryReplicatedLog) -> None:
    log.store_snapshot(SNAPSHOT, b"x" * 100)
    background = ManualDisk()
    answers: list[Any] = []
    snapshots = SnapshotSender(log, background=background)
    for _ in range(HASHES_MAX + 3):
        snapshots.hash(act.SendSnapshotHash(1, SNAPSHOT, 5), answers.append)
    assert len(background.jobs) == HASHES_MAX
    assert [answer.error_code for answer in answers] == [ErrorCode.SNAPSHOT_NOT_FOUND] * 3

    background.finish()
    snapshots.hash(act.SendSnapshotHash(1, SNAPSHOT, 5), answers.append)
    assert (len(background.jobs), len(answers)) == (HASHES_MAX, 4)
