"""The checks of a receiver, and the common part of every answer, in the order of KIP-595, Vote, and KIP-853, Vote."""

from __future__ import annotations

from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import SendResponse
from kraftlib.consensus.checks import (
    Answer,
    bootstrap_servers,
    cluster_error,
    common_part,
    error_name,
    leader_only_error,
    node_endpoints,
    only_partition,
    read_partition,
    voter_key_error,
    voter_only_error,
)
from kraftlib.consensus.events import TimeoutReached
from kraftlib.consensus.roles import Role
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, ElectionState, Endpoint, LeaderAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus.build import (
    LISTENER,
    ask,
    begin_request,
    end_request,
    fetch_request,
    fetch_response,
    follower,
    leader,
    outstanding_to,
    partition_of,
    place,
    replica,
    reply,
    requests,
    tell,
    vote_request,
)


@pytest.mark.parametrize(
    ("cluster_id", "error"),
    [("cluster", ErrorCode.NONE), (None, ErrorCode.NONE), ("", 104), ("other", 104)],
)
def test_another_cluster_is_refused_and_none_is_served(cluster_id: str | None, error: int) -> None:
    """As Kafka does."""
    assert cluster_error(replica().state, cluster_id) == error


def test_exactly_the_metadata_partition_is_served() -> None:
    """Not none, not two, not another."""
    topics = vote_request(epoch=1).topics

    assert only_partition(topics) is topics[0].partitions[0]
    assert only_partition(()) is None
    assert only_partition(topics * 2) is None
    assert only_partition(vote_request(epoch=1, topic_name="other").topics) is None
    (topic,) = topics
    assert only_partition((attrs.evolve(topic, partitions=()),)) is None
    assert only_partition((attrs.evolve(topic, partitions=topic.partitions * 2),)) is None
    assert (
        only_partition((attrs.evolve(topic, partitions=(attrs.evolve(topic.partitions[0], partition_index=1),)),))
        is None
    )


def test_only_a_leader_of_the_same_epoch_answers_as_leader() -> None:
    """Older, newer, no leader, leaving."""
    core = leader()
    assert leader_only_error(core.state, 0) == ErrorCode.FENCED_LEADER_EPOCH
    assert leader_only_error(core.state, 2) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leader_only_error(core.state, 1) == ErrorCode.NONE
    core.state.shutdown_deadline_ms = 5
    assert leader_only_error(core.state, 1) == ErrorCode.BROKER_NOT_AVAILABLE
    assert leader_only_error(follower(1, epoch=5, leader_id=2).state, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_voters_speak_from_an_epoch_that_is_not_over() -> None:
    """And have an id."""
    state = follower(1, epoch=5, leader_id=2).state

    assert voter_only_error(state, 4, 2) == ErrorCode.FENCED_LEADER_EPOCH
    assert voter_only_error(state, 5, -1) == ErrorCode.INVALID_REQUEST
    assert voter_only_error(state, 5, 0) == ErrorCode.NONE
    assert voter_only_error(state, 5, 2) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("voter_id", "directory", "error"),
    [(-1, 9, 0), (1, 0, 0), (1, 1_001, 0), (1, 9, 125), (2, 0, 125), (2, 1_001, 125)],
)
def test_a_request_for_another_replica_is_noticed(voter_id: int, directory: int, error: int) -> None:
    """A zero directory id names no disk, id -1 nobody."""
    state = replica(directory_id=UUID(int=1_001)).state
    meant = UUID(int=directory) if directory else ZERO_UUID

    assert voter_key_error(state, voter_id, meant) == error


def test_bootstrap_servers_are_numbered_and_never_ourselves() -> None:
    """-2, -3, ... in the order of the list; without a list the other voters."""
    servers = (Endpoint("localhost", 9001), Endpoint("a", 1), Endpoint("b", 2))

    assert bootstrap_servers(replica(bootstrap_servers=servers).state) == [(-3, servers[1]), (-4, servers[2])]
    assert [number for number, _ in bootstrap_servers(replica().state)] == [2, 3]


def test_unknown_error_codes_have_a_name_in_logs() -> None:
    """Newer peers may send them."""
    assert error_name(6) == "NOT_LEADER_OR_FOLLOWER"
    assert error_name(4_242) == "error 4242"


ROWS = [
    # what the answer says, answer, leader known afterwards, is the peer left alone for a while
    ("1 not available", FetchResponse(error_code=8), (2, 5), True),
    ("2 not authorized", FetchResponse(error_code=31), (2, 5), True),
    ("3 other top level", FetchResponse(error_code=35), (2, 5), True),
    ("4 other partition", FetchResponse(), (2, 5), True),
    ("5 older epoch", fetch_response(epoch=4, leader_id=3), (2, 5), True),
    ("5 unknown leader epoch", fetch_response(epoch=5, leader_id=2, error=75), (2, 5), True),
    ("6 fenced", fetch_response(epoch=6, leader_id=3, error=74), (3, 6), False),
    ("6 newer without leader", fetch_response(epoch=6, leader_id=-1, error=6), (None, 6), False),
    ("6 not leader, nothing new", fetch_response(epoch=5, leader_id=2, error=6), (2, 5), True),
    ("8 not available", fetch_response(epoch=5, leader_id=2, error=8), (2, 5), True),
    ("10 invalid request", fetch_response(epoch=5, leader_id=2, error=42), (2, 5), True),
    ("11 unexpected", fetch_response(epoch=5, leader_id=2, error=999), (2, 5), True),
    ("success", fetch_response(epoch=5, leader_id=2), (2, 5), False),
]


@pytest.mark.parametrize(("answer", "known", "paused"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_common_part_of_an_answer_follows_the_table(
    answer: FetchResponse, known: tuple[int | None, int], paused: bool
) -> None:
    """None of them stops the replica, none is asked again in a hot loop."""
    core = follower(1, epoch=5, leader_id=2)
    asked = outstanding_to(core, 2).destination
    reply(core, 2, answer, now_ms=500)  # as late as an empty answer comes

    assert core.leader_and_epoch == LeaderAndEpoch(*known)
    assert core.state.connections.is_backing_off(asked, core.state.now_ms) == paused


def test_an_answer_that_names_the_leader_ends_the_search() -> None:
    """Row 7: the epoch is ours, and we knew no leader."""
    core = replica(1)
    asked = next(iter(core.state.connections._outstanding.values())).destination
    reply(core, asked, fetch_response(epoch=1, leader_id=3, error=6))

    assert (core.role, core.leader_and_epoch) == (Role.FOLLOWER, LeaderAndEpoch(3, 1))


@pytest.mark.parametrize(
    "request_",
    [
        vote_request(epoch=9, last=(9, 1), cluster_id=None),
        vote_request(epoch=9, last=(9, 1), voter_id=3),
        begin_request(epoch=9, voter_id=3, leader_id=2),
        begin_request(epoch=9, leader_id=2, cluster_id=None),
        fetch_request(epoch=5, offset=1, last_epoch=1, cluster_id=None),
    ],
    ids=[
        "vote without cluster",
        "vote for another",
        "begin for another",
        "begin without cluster",
        "fetch without cluster",
    ],
)
def test_strict_mode_refuses_before_it_believes_and_closes_the_connection(request_: object) -> None:
    """Kafka serves a null cluster id, and believes the epoch of a misdirected Vote (scenario E16, M11, I17)."""
    lenient, strict = follower(1, epoch=5, leader_id=2), follower(1, epoch=5, leader_id=2, strict=True)

    assert ask(lenient, request_, version=2) is not None
    assert tell(strict, request_, version=2) == [SendResponse(77, None)]
    assert strict.epoch == 5
    assert sum(strict.state.refused.values()) == 1


def test_an_observer_that_knows_no_cluster_serves_them_all() -> None:
    """And names none itself, as Kafka's protocol allows."""
    core = replica(1, own_id=9, cluster_id=None)

    assert (
        outstanding_to(core, next(iter(core.state.connections._outstanding.values())).destination).request.cluster_id
        is None
    )
    assert cluster_error(core.state, "any") is ErrorCode.NONE


def test_an_observer_that_remembers_its_leader_learns_where_it_is_from_an_answer_without_error() -> None:
    """After a restart nobody refuses it: its epoch is right, and only the endpoint is missing."""
    core = replica(1, own_id=9, election=ElectionState(epoch=1, leader_id=7), bootstrap_servers=(Endpoint("b", 1),))
    assert core.role is Role.UNATTACHED
    actions = reply(core, -2, fetch_response(epoch=1, leader_id=7, high_watermark=1))

    assert (core.role, core.leader_and_epoch) == (Role.FOLLOWER, LeaderAndEpoch(7, 1))
    assert [asked.destination for asked in requests(actions, FetchRequest)] == [7]


def test_an_answer_that_does_not_say_where_the_leader_is_is_not_followed_by_the_same_question_at_once() -> None:
    """Before version 17 of Fetch it cannot."""
    core = replica(1, own_id=9, election=ElectionState(epoch=1, leader_id=7), bootstrap_servers=(Endpoint("b", 1),))
    answer = attrs.evolve(fetch_response(epoch=1, leader_id=7, high_watermark=1), node_endpoints=())

    assert requests(reply(core, -2, answer), FetchRequest) == []
    assert core.role is Role.UNATTACHED


def test_a_voter_whose_disk_was_replaced_is_not_asked_in_a_hot_loop() -> None:
    """It answers INVALID_VOTER_KEY as fast as it is asked (found by simulation)."""
    core = replica(1)
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert core.role is Role.PROSPECTIVE
    partition = VoteResponse.PartitionData(
        error_code=ErrorCode.INVALID_VOTER_KEY, leader_id=-1, leader_epoch=core.epoch
    )
    response = VoteResponse(topics=(VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),))

    assert requests(reply(core, 2, response), VoteRequest) == []
    later = core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert [request.destination for request in requests(later, VoteRequest)] == [2]


def test_strict_mode_serves_whoever_says_what_it_must() -> None:
    """And what replicas do not ask each other names no cluster."""
    core = follower(1, epoch=5, leader_id=2, strict=True)

    assert partition_of(ask(core, vote_request(epoch=9, last=(9, 1), voter_id=1), version=2)).vote_granted
    assert core.epoch == 9
    assert ask(core, UpdateFeaturesRequest(), version=1).error_code == ErrorCode.NOT_CONTROLLER
    assert core.state.refused == {}


def test_an_answer_that_names_us_as_leader_is_not_believed() -> None:
    """Nobody knows better than we whom we lead: the rest of that answer counts for nothing."""
    core = replica(1)
    asked = next(iter(core.state.connections._outstanding.values())).destination
    actions = reply(core, asked, fetch_response(epoch=1, leader_id=1, high_watermark=1))

    assert (core.role, core.high_watermark) == (Role.UNATTACHED, None)
    assert core.state.refused == {"unknown leadership": 1}
    assert core.state.connections.is_backing_off(asked, core.state.now_ms)
    assert asked not in [request.destination for request in requests(actions, FetchRequest)]


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_without_exactly_our_partition_grants_nothing(count: int) -> None:
    """Nor is it asked for once more at once."""
    core = replica(1)
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    partition = VoteResponse.PartitionData(leader_id=-1, leader_epoch=core.epoch, vote_granted=True)
    topic = VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    actions = reply(core, 2, VoteResponse(topics=(topic,) * count))

    assert core.role is Role.PROSPECTIVE
    assert requests(actions, VoteRequest) == []
    assert core.state.connections.is_backing_off(2, core.state.now_ms)


@pytest.mark.parametrize(
    ("answer", "concerns_us"),
    [
        (Answer(top_level_error=8, epoch=5, leader_id=2), False),
        (Answer(top_level_error=0, epoch=5, leader_id=2, misplaced=True), False),
        (Answer(top_level_error=0, epoch=4, leader_id=2), False),
        (Answer(top_level_error=0, error=75, epoch=5, leader_id=2), False),
        (Answer(top_level_error=0, epoch=6), False),
        (Answer(top_level_error=0, epoch=5, leader_id=3), False),
        (Answer(top_level_error=0, error=42, epoch=5, leader_id=2), False),
        (Answer(top_level_error=0, error=42, epoch=5), False),
        (Answer(top_level_error=0, epoch=5, leader_id=2), True),
        (Answer(top_level_error=0, epoch=5), True),
    ],
)
def test_the_rest_of_an_answer_counts_only_without_an_error_in_our_epoch(answer: Answer, concerns_us: bool) -> None:
    """Only then has the peer not failed either."""
    state = follower(1, epoch=5, leader_id=2).state
    number = state.connections.open(3, place(3), fetch_request(epoch=5, offset=1, last_epoch=1), 0)
    state.connections.failed(3, -1_000, 1)
    outstanding = state.connections.take(number)
    assert outstanding is not None

    assert common_part(state, outstanding, answer)[0] is concerns_us
    if answer.epoch <= 5:  # a change of role forgets failures
        assert (state.connections.failures(3) == 0) is concerns_us
    if answer.leader_id == 3:
        assert state.refused == {"two leaders": 1}
        assert state.connections.is_backing_off(3, 0)


def test_the_leader_of_id_0_is_somebody() -> None:
    """Nobody is -1."""
    partition = VoteResponse.PartitionData(leader_id=0, leader_epoch=5)
    response = VoteResponse(topics=(VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),))
    answer, _ = read_partition(replica().state, response, endpoints=())

    assert answer.leader_id == 0


@pytest.mark.parametrize(
    ("node_id", "host", "port", "is_told"),
    [(2, "h", 1, True), (2, "h", 65_535, True), (2, "h", 0, False), (2, "h", 65_536, False), (2, "", 1, False),
     (3, "h", 1, False)],
)  # fmt: skip
def test_an_answer_says_where_its_leader_is_or_nothing(node_id: int, host: str, port: int, is_told: bool) -> None:
    @attrs.frozen
    class Told:
        node_id: int
        host: str
        port: int

    found = node_endpoints(replica().state, [Told(node_id, host, port)], 2)
    assert found == ({LISTENER: Endpoint(host, port)} if is_told else {})


@pytest.mark.parametrize("count", [0, 2])
def test_strict_mode_leaves_to_the_others_what_is_no_question_of_identity(count: int) -> None:
    """A Vote about no partition is impossible for everybody; End and Fetch are meant for whoever they reach."""
    core = follower(1, epoch=5, leader_id=2, strict=True)
    request = vote_request(epoch=9, last=(9, 1))

    answer = ask(core, attrs.evolve(request, topics=request.topics * count), version=2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert ask(core, fetch_request(epoch=5, offset=1, last_epoch=1), version=18) is not None
    assert ask(core, end_request(epoch=4)) is not None
    assert core.state.refused == {}
