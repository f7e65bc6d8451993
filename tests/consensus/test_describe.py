"""DescribeQuorum (KIP-595) and DescribeCluster (KIP-919)."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftlib.consensus.events import ResignRequested
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, Endpoint, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from tests.consensus.build import (
    LISTENER,
    ask,
    fetch_request,
    flush,
    follower,
    leader,
    log_view,
    partition_of,
    place,
    replica,
    tell,
    voter_set,
)


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


def test_a_client_of_version_0_is_told_in_words_that_it_knows() -> None:
    """It has no endpoint types, so brokers is what it asks for (KIP-919)."""
    assert ask(leader(1), DescribeClusterRequest(), version=0).error_code == ErrorCode.INVALID_REQUEST


DISKS = {number: UUID(int=number) for number in (1, 2, 9)}


def test_disks_and_nodes_are_named_from_the_version_on_that_has_a_place_for_them() -> None:
    """Voters whose disk is not known have none; observers name their own."""
    keys = voter_set(ReplicaKey(1, DISKS[1]), ReplicaKey(2, DISKS[2]), ReplicaKey(3))
    core = leader(1, voters=keys, log=log_view(1, voters=keys), directory_id=DISKS[1])
    for replica_id, request_id in ((2, 50), (9, 51)):
        request = fetch_request(
            epoch=core.epoch, offset=2, last_epoch=2, replica_id=replica_id, replica_directory_id=DISKS[replica_id]
        )
        tell(core, request, version=18, request_id=request_id)
    for version in (1, 2):
        response = ask(core, describe_request(), version=version)
        partition = partition_of(response)
        rows = {row.replica_id: row.replica_directory_id for row in (*partition.current_voters, *partition.observers)}
        if version == 1:
            assert (set(rows.values()), response.nodes) == ({ZERO_UUID}, ())
        else:
            assert rows == {1: DISKS[1], 2: DISKS[2], 3: ZERO_UUID, 9: DISKS[9]}
            listeners = [(node.node_id, row.name, row.port) for node in response.nodes for row in node.listeners]
            assert listeners == [(1, LISTENER, 9001), (2, LISTENER, 9002), (3, LISTENER, 9003)]


def test_a_leader_that_has_committed_nothing_names_no_high_watermark() -> None:
    core = leader(1)
    assert partition_of(ask(core, describe_request(), version=2)).high_watermark == -1
    for high_watermark in (0, 1):
        core.state.high_watermark = high_watermark
        assert partition_of(ask(core, describe_request(), version=2)).high_watermark == high_watermark


def test_a_leader_names_all_that_it_has_flushed_or_not() -> None:
    core = leader(1)
    (own, *_) = partition_of(ask(core, describe_request(), version=2)).current_voters
    assert (own.replica_id, own.log_end_offset, core.state.log.flushed_offset) == (1, 2, 1)
    assert own.replica_directory_id == ZERO_UUID


def test_a_voter_that_was_removed_before_it_ever_fetched_is_no_observer_yet() -> None:
    core = leader(1)
    role = core.state.role_state
    role.observers[ReplicaKey(3)] = role.progress[3]  # type: ignore[union-attr]
    assert partition_of(ask(core, describe_request(), version=2)).observers == ()


def test_a_question_about_nothing_is_answered_for_the_one_partition() -> None:
    response = ask(leader(1), DescribeQuorumRequest(), version=2)
    assert response.topics[0].topic_name == METADATA_TOPIC
    assert partition_of(response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(leader(1), describe_request("other"), version=2).topics[0].topic_name == "other"
    assert partition_of(ask(leader(1), describe_request(), version=2)).error_code == ErrorCode.NONE


def test_a_leader_that_has_resigned_is_no_active_controller() -> None:
    core = leader(1)
    core.handle(ResignRequested(core.epoch), core.state.now_ms)
    assert core.leader_and_epoch == LeaderAndEpoch(None, core.epoch)
    assert ask(core, DescribeClusterRequest(endpoint_type=2), version=1).controller_id == -1


def test_voters_without_our_listener_are_not_named_nor_is_such_a_leader() -> None:
    keys = VoterSet.of(
        [Voter(key=ReplicaKey(1), endpoints={LISTENER: place(1)}),
         Voter(key=ReplicaKey(2), endpoints={"OTHER": Endpoint("elsewhere", 1)})]
    )  # fmt: skip
    core = replica(1, voters=keys, log=log_view(1, voters=keys), cluster_id=None)
    core.state.role_state.leader_id = 2  # type: ignore[union-attr]
    response = ask(core, DescribeClusterRequest(endpoint_type=2), version=1)
    assert ([node.broker_id for node in response.brokers], response.controller_id) == ([1], -1)
    assert (response.cluster_id, response.endpoint_type) == ("", 2)
