"""Sending, and the common part of every response."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.consensus.events import TimeoutReached
from kraftlib.consensus.requests import Answer, bootstrap_servers, common_part, error_name, read_answer
from kraftlib.consensus.roles import Role
from kraftlib.types import ElectionState, Endpoint, LeaderAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus.build import (
    LISTENER,
    fetch_request,
    fetch_response,
    follower,
    outstanding_to,
    pending_requests,
    place,
    replica,
    reply,
    requests,
    told_of,
)


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
    asked = pending_requests(core)[0].destination
    reply(core, asked, fetch_response(epoch=1, leader_id=3, error=6))

    assert (core.role, core.leader_and_epoch) == (Role.FOLLOWER, LeaderAndEpoch(3, 1))


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
    response = told_of(VoteResponse, epoch=core.epoch, error=ErrorCode.INVALID_VOTER_KEY)

    assert requests(reply(core, 2, response), VoteRequest) == []
    later = core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert [request.destination for request in requests(later, VoteRequest)] == [2]


def test_an_answer_that_names_us_as_leader_is_not_believed() -> None:
    """Nobody knows better than we whom we lead: the rest of that answer counts for nothing."""
    core = replica(1)
    asked = pending_requests(core)[0].destination
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
    response = told_of(VoteResponse, epoch=core.epoch, vote_granted=True)
    actions = reply(core, 2, attrs.evolve(response, topics=response.topics * count))

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
    response = told_of(VoteResponse, 0, epoch=5)
    answer, _ = read_answer(replica().state, response, response.topics[0].partitions[0])

    assert answer.leader_id == 0


@pytest.mark.parametrize(
    ("node_id", "host", "port", "is_told"),
    [(2, "h", 1, True), (2, "h", 65_535, True), (2, "h", 0, False), (2, "h", 65_536, False), (2, "", 1, False),
     (3, "h", 1, False)],
)  # fmt: skip
def test_an_answer_says_where_its_leader_is_or_nothing(node_id: int, host: str, port: int, is_told: bool) -> None:
    partition = VoteResponse.PartitionData(leader_id=2, leader_epoch=5)
    response = VoteResponse(node_endpoints=(VoteResponse.NodeEndpoint(node_id=node_id, host=host, port=port),))
    answer, _ = read_answer(replica().state, response, partition)
    assert answer.endpoints == ({LISTENER: Endpoint(host, port)} if is_told else {})
