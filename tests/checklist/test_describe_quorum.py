"""Checklist section 8: DescribeQuorum."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraftlib.consensus.describe import OBSERVER_SESSION_MS
from kraftlib.consensus.events import TimeoutReached
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.types import BOOTSTRAP_SNAPSHOT, METADATA_TOPIC, ZERO_UUID, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from tests.consensus.build import ask, fetch_request, flush, follower, leader, partition_of, submit, tell, voter_set

PARTITION = DescribeQuorumRequest.PartitionData(partition_index=0)
QUESTION = DescribeQuorumRequest(
    topics=(DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(PARTITION,)),)
)


def describe(core: Replica, *, now_ms: int | None = None) -> Any:
    """The one partition of a description."""
    return partition_of(ask(core, QUESTION, version=2, now_ms=now_ms))


def fetch(core: Replica, replica_id: int, at_ms: int, *, offset: int | None = None) -> None:
    """A Fetch of a replica, by default of one that has everything."""
    log = core.state.log
    wanted = log.end_offset if offset is None else offset
    last_epoch = log.last_epoch if wanted else 0
    request = fetch_request(epoch=core.epoch, offset=wanted, last_epoch=last_epoch, replica_id=replica_id)
    tell(core, request, version=18, request_id=at_ms, now_ms=at_ms)


def append(core: Replica, count: int) -> None:
    """Records of the application, flushed at once."""
    submit(core, count)
    flush(core)


def test_only_the_leader_describes_the_quorum() -> None:
    """testDescribeQuorumNonLeader: top level NONE, at the partition NOT_LEADER_OR_FOLLOWER with a message."""
    response = ask(follower(1, epoch=5, leader_id=2), QUESTION, version=2)
    partition = partition_of(response)

    assert response.error_code == 0
    assert (partition.error_code, partition.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert partition.error_message
    assert response.nodes == ()


def test_a_new_leader_of_a_static_quorum_knows_nothing_of_the_others() -> None:
    """testDescribeQuorumWithOnlyStaticVoters: no directory ids, and the high watermark is -1."""
    core = leader(directory_id=UUID(int=1_001))
    partition = describe(core)

    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, -1)
    assert {row.replica_directory_id for row in partition.current_voters} == {ZERO_UUID}
    assert [(row.replica_id, row.log_end_offset, row.last_fetch_timestamp) for row in partition.current_voters[1:]] == [
        (2, -1, -1),
        (3, -1, -1),
    ]


def test_followers_are_caught_up_when_they_have_what_was_there() -> None:
    """testDescribeQuorumWithFollowers: step by step, and NOT_LEADER_OR_FOLLOWER once nobody fetches any more."""
    core = leader()
    flush(core)
    start = core.state.now_ms

    def row(number: int) -> tuple[int, int, int]:
        found = next(row for row in describe(core).current_voters if row.replica_id == number)
        return found.log_end_offset, found.last_fetch_timestamp, found.last_caught_up_timestamp

    fetch(core, 2, start + 100, offset=0)
    assert row(2) == (0, start + 100, -1)
    fetch(core, 2, start + 200)
    assert row(2) == (1, start + 200, start + 200)
    assert describe(core).high_watermark == 1
    append(core, 2)
    # It has now all that there was at its last Fetch, not all that there is.
    fetch(core, 2, start + 300, offset=1)
    assert row(2) == (1, start + 300, start + 200)
    append(core, 1)
    fetch(core, 2, start + 400, offset=3)
    assert row(2) == (3, start + 400, start + 300)
    assert row(3) == (-1, -1, -1)
    assert row(1) == (4, start + 400, start + 400)

    core.handle(TimeoutReached(), start + 400 + 3_000)
    assert describe(core).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_observers_appear_when_they_fetch_and_go_after_five_minutes_of_silence() -> None:
    """testDescribeQuorumWithObservers: with their times; who has no id is not among them."""
    core = leader()
    flush(core)
    start = core.state.now_ms
    fetch(core, 2, start + 1)
    assert describe(core).observers == ()
    fetch(core, 9, start + 10, offset=0)
    fetch(core, -1, start + 11)
    (seen,) = describe(core).observers
    assert (seen.replica_id, seen.log_end_offset, seen.last_fetch_timestamp) == (9, 0, start + 10)
    assert seen.last_caught_up_timestamp == -1
    fetch(core, 9, start + 20)
    (seen,) = describe(core).observers
    assert seen.last_caught_up_timestamp == start + 20

    for at_ms in range(start + 1_000, start + 20 + OBSERVER_SESSION_MS, 1_000):
        fetch(core, 2, at_ms)
    assert len(describe(core, now_ms=start + 20 + OBSERVER_SESSION_MS).observers) == 1
    assert describe(core, now_ms=start + 21 + OBSERVER_SESSION_MS).observers == ()


def test_the_voters_of_the_bootstrap_checkpoint_count_and_not_those_of_the_configuration() -> None:
    """testStaticVotersIgnoredWithBootstrapSnapshot."""
    keys = [ReplicaKey(number, UUID(int=1_000 + number)) for number in (1, 2, 4)]
    log = LogView.build(snapshots=(BOOTSTRAP_SNAPSHOT,), static_voters=voter_set(1, 2, 3))
    log.observe_snapshot(BOOTSTRAP_SNAPSHOT, (KRaftVersionRecord(kraft_version=1), voter_set(*keys).to_record()))
    core = leader(log=log, directory_id=UUID(int=1_001))

    assert [(row.replica_id, row.replica_directory_id.int) for row in describe(core).current_voters] == [
        (1, 1_001),
        (2, 1_002),
        (4, 1_004),
    ]
