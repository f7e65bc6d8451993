"""DescribeQuorum: rpcs.md section 9; DescribeCluster."""

from __future__ import annotations

import pytest

from kraftlib.consensus.describe import OBSERVER_SESSION_MS
from kraftlib.types import METADATA_TOPIC
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from tests.consensus.build import ask, fetch_request, flush, follower, leader, partition_of, replica, tell


def describe_request(topic: str = METADATA_TOPIC) -> DescribeQuorumRequest:
    """Ask for the one partition."""
    kind = DescribeQuorumRequest
    return kind(topics=(kind.TopicData(topic_name=topic, partitions=(kind.PartitionData(partition_index=0),)),))


def test_a_leader_tells_where_everybody_stands() -> None:
    """Itself with the time of now, the others as their Fetches said, who never fetched as -1."""
    core = leader(1)
    core.wall_offset_ms = 1_000_000
    flush(core)
    now_ms = core.state.now_ms
    for replica_id, request_id in ((2, 50), (9, 51)):
        request = fetch_request(epoch=core.epoch, offset=2, last_epoch=2, replica_id=replica_id)
        tell(core, request, version=18, request_id=request_id)
    response = ask(core, describe_request(), version=2)
    partition = partition_of(response)
    wall = now_ms + 1_000_000

    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 2, 2)
    assert [
        (row.replica_id, row.log_end_offset, row.last_fetch_timestamp, row.last_caught_up_timestamp)
        for row in partition.current_voters
    ] == [(1, 2, wall, wall), (2, 2, wall, wall), (3, -1, -1, -1)]
    assert [row.replica_id for row in partition.observers] == [9]
    assert [node.node_id for node in response.nodes] == [1, 2, 3]


def test_an_observer_that_is_silent_for_long_is_left_out() -> None:
    """Five minutes."""
    core = leader(1)
    tell(core, fetch_request(epoch=core.epoch, offset=2, last_epoch=2, replica_id=9), version=18, request_id=50)
    role = core.state.role_state
    role.check_quorum_deadline_ms = 10**9  # type: ignore[union-attr]
    later = core.state.now_ms + OBSERVER_SESSION_MS + 1

    assert partition_of(ask(core, describe_request(), version=2, now_ms=later)).observers == ()


def test_only_the_leader_knows() -> None:
    """The others say so, with fields that mean nothing."""
    partition = partition_of(ask(follower(1, epoch=5, leader_id=2), describe_request(), version=2))

    assert (partition.error_code, partition.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


def test_another_topic_is_unknown() -> None:
    """At the partition, as Kafka answers it."""
    partition = partition_of(ask(leader(1), describe_request("other"), version=2))

    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_everybody_names_the_voters_as_controllers_and_the_leader_as_the_active_one() -> None:
    """A client that was given any controller finds all of them."""
    for core, leader_id in ((leader(1), 1), (follower(1, epoch=5, leader_id=2), 2), (replica(1), -1)):
        response = ask(core, DescribeClusterRequest(endpoint_type=2), version=1)

        assert (response.cluster_id, response.controller_id, response.error_code) == ("cluster", leader_id, 0)
        assert [(node.broker_id, node.port) for node in response.brokers] == [(1, 9001), (2, 9002), (3, 9003)]


@pytest.mark.parametrize(
    ("endpoint_type", "error"), [(1, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_brokers_are_not_to_be_had_here(endpoint_type: int, error: ErrorCode) -> None:
    """Whoever asks for brokers has the wrong port."""
    assert ask(leader(1), DescribeClusterRequest(endpoint_type=endpoint_type), version=1).error_code == error
