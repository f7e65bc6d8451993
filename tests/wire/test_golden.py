"""Bytes that must never change: messages written out by hand, and a few frames of other quorums of real Kafka."""

from __future__ import annotations

import uuid

import pytest

from kraftlib.codec.declared import Message, read, write
from kraftlib.codec.json_form import to_json
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftlib.wire.frames import decode_request, decode_response, encode_request, encode_response
from kraftlib.wire.messages.acls import DescribeAclsRequest
from kraftlib.wire.messages.alter_partition import AlterPartitionRequest
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftlib.wire.messages.describe_configs import DescribeConfigsResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse

DIRECTORY_ID = uuid.UUID(bytes=bytes(range(16)))
CLUSTER_ID = "cluster-1"


def hexadecimal(text: str) -> bytes:
    return bytes.fromhex("".join(text.split()))


VOTE_REQUEST = VoteRequest(
    cluster_id=CLUSTER_ID,
    voter_id=2,
    topics=(
        VoteRequest.TopicData(
            topic_name=METADATA_TOPIC,
            partitions=(
                VoteRequest.PartitionData(
                    replica_epoch=5,
                    replica_id=1,
                    replica_directory_id=DIRECTORY_ID,
                    voter_directory_id=DIRECTORY_ID,
                    last_offset_epoch=4,
                    last_offset=100,
                    pre_vote=True,
                ),
            ),
        ),
    ),
)


def fetch_request(*, high_watermark: int) -> FetchRequest:
    return FetchRequest(
        cluster_id=CLUSTER_ID,
        replica_state=FetchRequest.ReplicaState(replica_id=1),
        max_wait_ms=500,
        max_bytes=1_048_576,
        topics=(
            FetchRequest.FetchTopic(
                topic_id=METADATA_TOPIC_ID,
                partitions=(
                    FetchRequest.FetchPartition(
                        current_leader_epoch=5,
                        fetch_offset=100,
                        last_fetched_epoch=4,
                        replica_directory_id=DIRECTORY_ID,
                        high_watermark=high_watermark,
                    ),
                ),
            ),
        ),
    )


def fetch_response(partition: FetchResponse.PartitionData) -> FetchResponse:
    return FetchResponse(
        responses=(FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        node_endpoints=(FetchResponse.NodeEndpoint(node_id=1, host="localhost", port=9093),),
    )


LEADER = FetchResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=5)
FETCH_BEGIN = """000001f4 00000000 00100000 00 00000000 ffffffff
    02 00000000000000000000000000000001 02
    00000000 00000005 0000000000000064 00000004 ffffffffffffffff 00000000"""
FETCH_END = "01 01 02 00 0a 0a636c75737465722d31 01 0d 00000001 ffffffffffffffff 00"

CONSTRUCTED = [
    pytest.param(
        fetch_request(high_watermark=90),
        18,
        FETCH_BEGIN + "02 00 10 000102030405060708090a0b0c0d0e0f 01 08 000000000000005a 00" + FETCH_END,
        id="Fetch request 18",
    ),
    pytest.param(
        fetch_request(high_watermark=90),  # ignorable: version 17 drops it
        17,
        FETCH_BEGIN + "01 00 10 000102030405060708090a0b0c0d0e0f 00" + FETCH_END,
        id="Fetch request 17",
    ),
    pytest.param(
        VoteResponse(
            topics=(
                VoteResponse.TopicData(
                    topic_name=METADATA_TOPIC, partitions=(VoteResponse.PartitionData(leader_id=1, leader_epoch=5),)
                ),
            ),
            node_endpoints=(VoteResponse.NodeEndpoint(node_id=1, host="localhost", port=9093),),
        ),
        2,
        """000002135f5f636c75737465725f6d65746164617461020000000000000000000100000005000000010012020000
        00010a6c6f63616c686f7374238500""",
        id="Vote response 2",
    ),
    pytest.param(
        BeginQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            voter_id=-1,
            topics=(
                BeginQuorumEpochRequest.TopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=(BeginQuorumEpochRequest.PartitionData(leader_id=1, leader_epoch=5),),
                ),
            ),
        ),
        0,
        """0009636c75737465722d310000000100125f5f636c75737465725f6d6574616461746100000001
        000000000000000100000005""",
        id="BeginQuorumEpoch request 0",
    ),
    pytest.param(
        BeginQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            voter_id=2,
            topics=(
                BeginQuorumEpochRequest.TopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=(
                        BeginQuorumEpochRequest.PartitionData(
                            voter_directory_id=DIRECTORY_ID, leader_id=1, leader_epoch=5
                        ),
                    ),
                ),
            ),
            leader_endpoints=(BeginQuorumEpochRequest.LeaderEndpoint(name="CONTROLLER", host="localhost", port=9093),),
        ),
        1,
        """0a636c75737465722d310000000202135f5f636c75737465725f6d65746164617461020000000000010203040506
        0708090a0b0c0d0e0f00000001000000050000020b434f4e54524f4c4c45520a6c6f63616c686f737423850000""",
        id="BeginQuorumEpoch request 1",
    ),
    pytest.param(
        EndQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            topics=(
                EndQuorumEpochRequest.TopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=(
                        EndQuorumEpochRequest.PartitionData(
                            leader_id=1,
                            leader_epoch=5,
                            preferred_candidates=(
                                EndQuorumEpochRequest.ReplicaInfo(candidate_id=2, candidate_directory_id=DIRECTORY_ID),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        1,
        """0a636c75737465722d3102135f5f636c75737465725f6d657461646174610200000000000000010000000502000000
        02000102030405060708090a0b0c0d0e0f0000000100""",
        id="EndQuorumEpoch request 1",
    ),
    pytest.param(
        fetch_response(
            FetchResponse.PartitionData(
                high_watermark=90,
                log_start_offset=0,
                diverging_epoch=FetchResponse.EpochEndOffset(epoch=3, end_offset=42),
                current_leader=LEADER,
                records=b"",
            )
        ),
        17,
        """00000000000000000000020000000000000000000000000000000102000000000000000000000000005affffffffff
        ffffff000000000000000001ffffffff0102000d00000003000000000000002a00010900000001000000050000010015
        02000000010a6c6f63616c686f7374000023850000""",
        id="Fetch response 17, diverging",
    ),
    pytest.param(
        fetch_response(
            FetchResponse.PartitionData(
                high_watermark=1200,
                log_start_offset=0,
                snapshot_id=FetchResponse.SnapshotId(end_offset=1000, epoch=4),
                current_leader=LEADER,
                records=b"",
            )
        ),
        18,
        """0000000000000000000002000000000000000000000000000000010200000000000000000000000004b0ffffffffff
        ffffff000000000000000001ffffffff01020109000000010000000500020d00000000000003e8000000040000010015
        02000000010a6c6f63616c686f7374000023850000""",
        id="Fetch response 18, snapshot",
    ),
    pytest.param(
        FetchSnapshotRequest(
            cluster_id=CLUSTER_ID,
            replica_id=1,
            max_bytes=1_048_576,
            topics=(
                FetchSnapshotRequest.TopicSnapshot(
                    name=METADATA_TOPIC,
                    partitions=(
                        FetchSnapshotRequest.PartitionSnapshot(
                            current_leader_epoch=5,
                            snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=1000, epoch=4),
                            replica_directory_id=DIRECTORY_ID,
                        ),
                    ),
                ),
            ),
        ),
        1,
        """000000010010000002135f5f636c75737465725f6d6574616461746102000000000000000500000000000003e8000000
        04000000000000000000010010000102030405060708090a0b0c0d0e0f0001000a0a636c75737465722d31""",
        id="FetchSnapshot request 1",
    ),
    pytest.param(
        FetchSnapshotResponse(
            topics=(
                FetchSnapshotResponse.TopicSnapshot(
                    name=METADATA_TOPIC,
                    partitions=(
                        FetchSnapshotResponse.PartitionSnapshot(
                            snapshot_id=FetchSnapshotResponse.SnapshotId(end_offset=1000, epoch=4),
                            current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=5),
                            size=4,
                            position=0,
                            unaligned_records=bytes.fromhex("deadbeef"),
                        ),
                    ),
                ),
            ),
            node_endpoints=(FetchSnapshotResponse.NodeEndpoint(node_id=1, host="localhost", port=9093),),
        ),
        1,
        """00000000000002135f5f636c75737465725f6d657461646174610200000000000000000000000003e800000004000000
        000000000004000000000000000005deadbeef0100090000000100000005000001001202000000010a6c6f63616c686f
        7374238500""",
        id="FetchSnapshot response 1",
    ),
    pytest.param(
        UpdateRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            current_leader_epoch=5,
            voter_id=2,
            voter_directory_id=DIRECTORY_ID,
            listeners=(UpdateRaftVoterRequest.Listener(name="CONTROLLER", host="localhost", port=9093),),
            kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(max_supported_version=1),
        ),
        0,
        """0a636c75737465722d310000000500000002000102030405060708090a0b0c0d0e0f020b434f4e54524f4c4c45520a
        6c6f63616c686f7374238500000000010000""",
        id="UpdateRaftVoter request 0",
    ),
    # Versions that Kafka 4.0 took away (KIP-896).
    pytest.param(
        CreateTopicsRequest(
            topics=(CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=1),),
            timeout_ms=1_000,
        ),
        0,
        "00000001 0001 74 00000002 0001 00000000 00000000 000003e8",
        id="CreateTopics request 0",
    ),
    pytest.param(
        CreateTopicsResponse(topics=(CreateTopicsResponse.CreatableTopicResult(name="t", error_code=36),)),
        0,
        "00000001 0001 74 0024",
        id="CreateTopics response 0",
    ),
    pytest.param(
        DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        0,
        "01 ffff ffff ffff 01 01",
        id="DescribeAcls request 0",
    ),
    pytest.param(
        DescribeConfigsResponse(
            results=(
                DescribeConfigsResponse.DescribeConfigsResult(
                    error_message=None,
                    resource_type=2,
                    resource_name="t",
                    configs=(DescribeConfigsResponse.DescribeConfigsResourceResult(name="k", value="v"),),
                ),
            )
        ),
        0,
        "00000000 00000001 0000 ffff 02 0001 74 00000001 0001 6b 0001 76 00 00 00",
        id="DescribeConfigs response 0",
    ),
    pytest.param(
        AlterPartitionRequest(
            broker_id=1,
            broker_epoch=5,
            topics=(
                AlterPartitionRequest.TopicData(
                    topic_name="t",
                    partitions=(
                        AlterPartitionRequest.PartitionData(
                            partition_index=0, leader_epoch=3, new_isr=(1, 2), partition_epoch=4
                        ),
                    ),
                ),
            ),
        ),
        0,
        """00000001 0000000000000005 02 02 74 02 00000000 00000003 03 00000001 00000002 00000004
        00 00 00""",
        id="AlterPartition request 0",
    ),
]


@pytest.mark.parametrize(("message", "version", "encoded"), CONSTRUCTED)
def test_a_message_has_exactly_these_bytes(message: Message, version: int, encoded: str) -> None:
    assert write(message, version).hex() == hexadecimal(encoded).hex()
    again = read(type(message), hexadecimal(encoded), version, expect_end=True)
    assert to_json(again, version) == to_json(message, version)


def test_a_vote_request_is_this_frame() -> None:
    frame = hexadecimal(
        """0034 0002 00000007 000d 726166742d636c69656e742d31 00
        0a 636c75737465722d31 00000002 02 13 5f5f636c75737465725f6d65746164617461 02
        00000000 00000005 00000001 000102030405060708090a0b0c0d0e0f 000102030405060708090a0b0c0d0e0f
        00000004 0000000000000064 01 00 00 00"""
    )

    assert encode_request(VOTE_REQUEST, version=2, correlation_id=7, client_id="raft-client-1") == frame
    assert len(frame) == 0x77
    assert decode_request(frame).message == VOTE_REQUEST


# Of quorums whose other traffic is not in tests/data.
CAPTURED = [
    pytest.param(
        """005200000000000d000d726166742d636c69656e742d3300176874655552317a4b5352796762624f784d5f3541696700000001
        000000035a40a4d95b195f363482c203fb0bb115020b434f4e54524f4c4c45520a6c6f63616c686f7374259700000000010000""",
        "0000000d0000000000000001001700000001000000010a3132372e302e302e310000259500",
        {
            "voterId": 3,
            "currentLeaderEpoch": 1,
            "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
        },
        {"errorCode": 0, "currentLeader": {"leaderId": 1, "leaderEpoch": 1, "host": "127.0.0.1", "port": 9621}},
        id="UpdateRaftVoter 0",
    ),
    pytest.param(
        """005000010000000a000d726166742d636c69656e742d3200176874655552317a4b5352796762624f784d5f35416967000007d0
        00000002da8d18efcdd50728d9c6839f3837a0a0020b434f4e54524f4c4c45520a3132372e302e302e312596000000""",
        "0000000a000000000000000000",
        {"voterId": 2, "timeoutMs": 2000, "ackWhenCommitted": False},
        {"errorCode": 0, "errorMessage": None},
        id="AddRaftVoter 1 of a controller that joins by itself",
    ),
    pytest.param(
        """0051000000000011000d726166742d636c69656e742d3200176874655552317a4b5352796762624f784d5f3541696700000002
        da8d18efcdd50728d9c6839f3837a0a000""",
        "00000011000000000000000000",
        {"voterId": 2, "voterDirectoryId": "2o0Y783VByjZxoOfODegoA"},
        {"errorCode": 0, "errorMessage": None},
        id="RemoveRaftVoter 0",
    ),
]


@pytest.mark.parametrize(("request_hex", "response_hex", "asked", "answered"), CAPTURED)
def test_these_frames_of_kafka_are_read_and_written_alike(
    request_hex: str, response_hex: str, asked: dict[str, object], answered: dict[str, object]
) -> None:
    frame = hexadecimal(request_hex)
    request = decode_request(frame)
    version = request.api_version
    assert asked.items() <= to_json(request.message, version).items()
    assert frame == encode_request(
        request.message, version=version, correlation_id=request.correlation_id, client_id=request.client_id
    )

    frame = hexadecimal(response_hex)
    correlation_id, response = decode_response(frame, api_key=request.api_key, version=version)
    assert correlation_id == request.correlation_id
    assert answered.items() <= to_json(response, version).items()
    assert encode_response(response, version=version, correlation_id=correlation_id) == frame
