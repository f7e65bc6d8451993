"""`quorum status`: the text of Kafka's tool, made of what a real leader said; and the way to the leader."""

from __future__ import annotations

import json
from collections.abc import Callable

import attrs
import pytest

from kraftlib.cli.quorum import Description, describe
from kraftlib.codec.declarations import Message
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, Endpoint
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.frames import RequestHead, encode_response
from kraftlib.wire.messages.describe_cluster import DescribeClusterResponse
from kraftlib.wire.messages.describe_quorum import DescribeQuorumResponse
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.state_digest import StateDigestResponse
from kraftlib.wire_client import UnreachableError
from tests.cli.canned import Answer, captured, controller, from_table
from tests.cli.conftest import Command


@pytest.fixture(scope="module")
def real() -> Answer:
    """Answer as the leader of the captured quorum did."""
    return from_table(captured(9402))


@pytest.fixture
def description(real: Answer) -> Description:
    """What the captured leader said."""
    with controller(real) as endpoint:
        return describe([endpoint], timeout_s=10)


STATUS = """\
ClusterId:              KamCna3aR0Ca0-LOI6hKfg
LeaderId:               2
LeaderEpoch:            4
HighWatermark:          202
MaxFollowerLag:         0
MaxFollowerLagTimeMs:   144
CurrentVoters:          [\
{"id": 1, "directoryId": "e9MFl328Q-S5WPDKSl6znA", "endpoints": ["CONTROLLER://127.0.0.1:9401"]}, \
{"id": 2, "directoryId": "HouIQHL9Tn-_Z_4x-N7e3Q", "endpoints": ["CONTROLLER://127.0.0.1:9402"]}, \
{"id": 3, "directoryId": "sxQ9lStBQ1Odmyc8HnmqgQ", "endpoints": ["CONTROLLER://127.0.0.1:9403"]}, \
{"id": 4, "directoryId": "RrXf11Xba2rR0jWpMvseWw", "endpoints": ["CONTROLLER://127.0.0.1:9404"]}]
CurrentObservers:       [{"id": 10, "directoryId": "42eJbl7nG_Ji6bmLK7qhfA"}]
"""

REPLICATION = [
    "NodeId|DirectoryId           |LogEndOffset|Lag|LastFetchTimestamp|LastCaughtUpTimestamp|Status  |",
    "2     |HouIQHL9Tn-_Z_4x-N7e3Q|202         |0  |1795255808172     |1795255808172        |Leader  |",
    "1     |e9MFl328Q-S5WPDKSl6znA|202         |0  |1795255808028     |1795255808028        |Follower|",
    "3     |sxQ9lStBQ1Odmyc8HnmqgQ|202         |0  |1795255808024     |1795255808024        |Follower|",
    "4     |RrXf11Xba2rR0jWpMvseWw|202         |0  |1795255808028     |1795255808028        |Follower|",
    "10    |42eJbl7nG_Ji6bmLK7qhfA|202         |0  |1795255808027     |1795255808027        |Observer|",
]


def test_status_is_the_text_of_kafkas_tool(real: Answer, kraftlib: Command) -> None:
    with controller(real) as endpoint:
        result = kraftlib("quorum", "status", "--bootstrap", endpoint)

    assert (result.status, result.out) == (0, STATUS)


def test_replication_is_the_table_of_kafkas_tool(real: Answer, kraftlib: Command) -> None:
    with controller(real) as endpoint:
        result = kraftlib("quorum", "status", "--replication", "--bootstrap", endpoint)

    assert result.out.splitlines() == [line.replace("|", "\t") for line in REPLICATION]


@pytest.mark.parametrize(
    ("states", "text"),
    [
        (StateDigestResponse(agreed_offset=180), "equal at offset 180"),
        (StateDigestResponse(is_quarantined=True), "the leader is quarantined"),
        (
            StateDigestResponse(differing=(3, 10), undecided_offset=190, agreed_offset=180),
            "replica 3 differs from the majority; replica 10 differs from the majority; "
            "replicas differ at offset 190, without a majority",
        ),
    ],
)
def test_status_says_what_the_comparison_of_states_has_found(
    description: Description, states: StateDigestResponse, text: str
) -> None:
    lines = attrs.evolve(description, states=states).status().splitlines()

    assert lines[:-1] == STATUS.splitlines()
    assert lines[-1] == f"States:                 {text}"


def test_json_has_both(real: Answer, kraftlib: Command) -> None:
    with controller(real) as endpoint:
        found = json.loads(kraftlib("quorum", "status", "--output", "json", "--bootstrap", endpoint).out)

    assert (found["cluster_id"], found["leader_id"], found["leader_epoch"]) == ("KamCna3aR0Ca0-LOI6hKfg", 2, 4)
    assert [voter["id"] for voter in found["voters"]] == [1, 2, 3, 4]
    assert found["observers"][0]["log_end_offset"] == 202


def test_times_can_be_told_from_now(description: Description) -> None:
    now_ms = 1795255808172 + 2_500
    rows = description.replication(now_ms=now_ms).splitlines()

    assert "\t2500 ms ago" in rows[1]
    assert f"\t{2_500 + 144} ms ago" in rows[2]


def test_what_is_unknown_is_minus_one(description: Description) -> None:
    slow = attrs.evolve(description.voters[0], log_end_offset=200, last_caught_up_timestamp=-1, last_fetch_timestamp=-1)
    behind = attrs.evolve(description, voters=(slow, *description.voters[1:]))

    assert behind.lag_of_slowest() == (2, -1)
    assert "\t-1 " in behind.replication(now_ms=10**15).splitlines()[2]


def test_a_static_quorum_has_no_directory_ids(description: Description) -> None:
    (leader,) = [row for row in description.voters if row.replica_id == 2]
    alone = attrs.evolve(
        description, voters=(attrs.evolve(leader, replica_directory_id=ZERO_UUID),), observers=(), cluster_id=None
    )

    assert alone.status().splitlines()[0] == "ClusterId:              unknown"
    assert alone.status().splitlines()[-2:] == [
        'CurrentVoters:          [{"id": 2, "endpoints": ["CONTROLLER://127.0.0.1:9402"]}]',
        "CurrentObservers:       []",
    ]
    assert alone.lag_of_slowest() == (0, 0)
    assert alone.to_dict()["voters"][0]["directory_id"] is None


# The way to the leader ----------------------------------------------------------------------------


def follower(
    real: Answer, leader: Callable[[], Endpoint | None], *, in_cluster: bool = False, refuses_fetch: bool = False
) -> Answer:
    """Answer as one who does not lead, and may know who does."""

    def answer(head: RequestHead) -> bytes | None:
        if head.api_key == 55:
            refusal = DescribeQuorumResponse.PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            topic = DescribeQuorumResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(refusal,))
            message: Message = DescribeQuorumResponse(topics=(topic,))
        elif head.api_key == 1:
            if refuses_fetch:
                return None
            message = not_leader(leader())
        elif head.api_key == 60:
            message = controllers(leader() if in_cluster else None)
        else:
            return real(head)
        return encode_response(message, version=head.api_version, correlation_id=head.correlation_id)

    return answer


def not_leader(leader: Endpoint | None) -> FetchResponse:
    current = FetchResponse.LeaderIdAndEpoch(leader_id=-1 if leader is None else 2, leader_epoch=4)
    partition = FetchResponse.PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=current)
    topic = FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    nodes = (
        ()
        if leader is None
        else (FetchResponse.NodeEndpoint(node_id=2, host=leader.host, port=leader.port, rack=None),)
    )
    return FetchResponse(responses=(topic,), node_endpoints=nodes)


def controllers(leader: Endpoint | None) -> DescribeClusterResponse:
    if leader is None:
        return DescribeClusterResponse(cluster_id="x", controller_id=-1)
    row = DescribeClusterResponse.DescribeClusterBroker(broker_id=2, host=leader.host, port=leader.port)
    return DescribeClusterResponse(cluster_id="x", controller_id=2, brokers=(row,))


def test_a_follower_leads_a_tool_that_may_not_fetch_to_the_leader(real: Answer) -> None:
    """Administrators and clients may not: a replica breaks off the connection."""
    with controller(real) as leader:
        answer = follower(real, lambda: leader, in_cluster=True, refuses_fetch=True)
        with controller(answer) as other:
            assert describe([other], timeout_s=10).leader_id == 2


def test_a_follower_leads_to_the_leader(real: Answer) -> None:
    with controller(real) as leader, controller(follower(real, lambda: leader)) as other:
        assert describe([other], timeout_s=10).leader_id == 2


def test_a_follower_that_knows_nobody_is_passed_over(real: Answer) -> None:
    with controller(real) as leader, controller(follower(real, lambda: None)) as other:
        assert describe([other, leader], timeout_s=10).leader_id == 2


def test_without_a_leader_everybodys_answer_is_told(real: Answer, kraftlib: Command) -> None:
    with controller(follower(real, lambda: None)) as other:
        result = kraftlib("quorum", "status", "--bootstrap", f"{other},127.0.0.1:1", "--timeout-ms", 10_000)

    assert result.status == 1
    assert result.err.startswith(f"kraftlib: no leader found: {other} does not lead (NOT_LEADER_OR_FOLLOWER); ")
    assert "127.0.0.1:1 cannot be reached: Connection refused" in result.err


def test_two_followers_that_point_at_each_other_are_not_asked_for_ever(real: Answer) -> None:
    endpoints: list[Endpoint] = []
    with (
        controller(follower(real, lambda: endpoints[1])) as first,
        controller(follower(real, lambda: endpoints[0])) as second,
    ):
        endpoints += [first, second]
        with pytest.raises(UnreachableError, match="no leader found"):
            describe([first], timeout_s=10)


@pytest.mark.parametrize("words", [["--bootstrap", "nonsense"], ["--bootstrap", ","], []])
def test_bad_words_are_refused(words: list[str], kraftlib: Command) -> None:
    assert kraftlib("quorum", "status", *words).status in (1, 2)
