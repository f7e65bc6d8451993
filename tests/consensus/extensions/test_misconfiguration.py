"""Replicas of another quorum, and those that are not the ones that were meant: refused, counted, and warned of once."""

from __future__ import annotations

import logging
import struct
import uuid
from typing import Any

import attrs
import pytest

from kraftlib.consensus.actions import AppendToLog, SendRequest
from kraftlib.consensus.events import ResignRequested, ResponseReceived
from kraftlib.consensus.extensions.misconfiguration import (
    DETAIL_TAG,
    OTHER_CLUSTER,
    OTHER_VOTERS,
    VOTERS_TAG,
    introduction,
)
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.consensus.state import WARNINGS_MAX
from kraftlib.records.batch import encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.types import ElectionState, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus.build import (
    LONG,
    answer_vote,
    ask,
    begin_request,
    end_request,
    fetch_request,
    fetch_response,
    follower,
    in_role,
    leader,
    outstanding_to,
    replica,
    reply,
    told_of,
    vote_request,
    voter_set,
)

FIVE = voter_set(1, 2, 3, 4, 5)


def counting(*voter_ids: int) -> tuple[tuple[int, bytes], ...]:
    """What a request says of a list of voters."""
    return ((VOTERS_TAG, struct.pack(f">{len(voter_ids)}i", *voter_ids)),)


def saying(request: Any, *voter_ids: int) -> Any:
    return attrs.evolve(request, unknown_tagged_fields=counting(*voter_ids))


def said(response: Any) -> str:
    return dict(response.unknown_tagged_fields)[DETAIL_TAG].decode()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return [text for text in texts if "refused, " in text]


# Another list of static voters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (vote_request(epoch=9, last=LONG), 2),
        (vote_request(epoch=9, last=LONG, pre_vote=True), 2),
        (begin_request(epoch=9), 1),
        (end_request(epoch=9), 1),
        (fetch_request(epoch=5, offset=2, last_epoch=1), 18),
    ],
    ids=["vote", "pre-vote", "begin", "end", "fetch"],
)
@pytest.mark.parametrize("role", ["unattached", "leader"])
def test_a_peer_with_another_list_of_voters_is_refused_and_nothing_of_it_believed(
    request_: Any, version: int, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    core = in_role(role)
    election, before = core.state.election, core.role
    answer = ask(core, saying(request_, 1, 2, 3, 4, 5), version=version)

    assert answer.error_code == ErrorCode.INCONSISTENT_VOTER_SET
    assert said(answer) == "voters {1, 2, 3}"
    assert (core.state.election, core.role) == (election, before)
    assert core.state.refused == {OTHER_VOTERS: 1}
    (warning,) = warnings(caplog)
    assert "replica 2 counts the voters {1, 2, 3, 4, 5}, and we count {1, 2, 3}" in warning


@pytest.mark.parametrize("ids", [(1, 2, 3), (), None])
def test_the_same_list_none_and_a_replica_of_kafka_are_served(ids: tuple[int, ...] | None) -> None:
    """An empty list: its voters stand in the log; no tagged field at all: Kafka."""
    request = vote_request(epoch=6, last=LONG)
    answer = ask(in_role("unattached"), request if ids is None else saying(request, *ids), version=2)

    assert answer.topics[0].partitions[0].vote_granted


def test_where_the_voters_stand_in_the_log_no_list_is_compared() -> None:
    core = in_role("unattached")
    records = [KRaftVersionRecord(kraft_version=1), voter_set(1, 2).to_record()]
    core.state.log.append([encode_control_batch(records, timestamp_ms=1, base_offset=2, epoch=5)])

    assert introduction(core.state) == counting()
    answer = ask(core, saying(vote_request(epoch=6, last=(9, 5)), 1, 2, 3), version=2)
    assert answer.topics[0].partitions[0].vote_granted


def test_a_list_that_cannot_be_read_is_another_one(caplog: pytest.LogCaptureFixture) -> None:
    core = in_role("unattached")
    request = attrs.evolve(vote_request(epoch=6, last=LONG), unknown_tagged_fields=((VOTERS_TAG, b"\n" * 999),))

    assert ask(core, request, version=2).error_code == ErrorCode.INCONSISTENT_VOTER_SET
    (warning,) = warnings(caplog)
    assert len(warning) < 600
    assert "\n" not in warning


def test_votes_begins_and_first_fetches_say_which_voters_we_count() -> None:
    """A Fetch says it until the leader has answered one: the many that follow are as Kafka's, byte for byte."""
    asked = in_role("prospective")
    led = leader(1, 1)
    core = follower(1, 1, epoch=5, leader_id=3)
    for request in (outstanding_to(asked, 2).request, outstanding_to(led, 3).request, outstanding_to(core, 3).request):
        assert isinstance(request, VoteRequest | BeginQuorumEpochRequest | FetchRequest)
        assert request.unknown_tagged_fields == counting(1, 2, 3)

    reply(core, 3, fetch_response(epoch=5, leader_id=3, high_watermark=0))
    assert outstanding_to(core, 3).request.unknown_tagged_fields == ()


def test_a_leader_that_resigns_says_which_voters_it_counts() -> None:
    """Else a replica with another list follows it, and cannot start any more once its list is put right."""
    led = in_role("leader")
    actions = led.handle(ResignRequested(led.epoch), led.state.now_ms)
    ends = [action.request for action in actions if isinstance(action, SendRequest)]

    assert ends
    for request in ends:
        assert isinstance(request, EndQuorumEpochRequest)
        assert request.unknown_tagged_fields == counting(1, 2, 3)


def refused_by(response: Any, code: int, detail: str) -> Any:
    return response(error_code=code, unknown_tagged_fields=((DETAIL_TAG, detail.encode()),))


@pytest.mark.parametrize(
    ("code", "detail", "reason", "text"),
    [
        (94, "voters {1, 2}", OTHER_VOTERS, "it counts other voters than ours, {1, 2, 3}; it says: 'voters {1, 2}'"),
        (104, "cluster 'B'", OTHER_CLUSTER, "it is of another cluster than ours, 'cluster'; it says: \"cluster 'B'\""),
    ],
)
def test_who_is_refused_says_so_with_both_sides(
    code: int, detail: str, reason: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked, led, follows = in_role("prospective"), leader(1, 1), follower(1, 1, epoch=5, leader_id=3)
    reply(asked, 2, refused_by(VoteResponse, code, detail))
    reply(led, 3, refused_by(BeginQuorumEpochResponse, code, detail))
    reply(follows, 3, refused_by(FetchResponse, code, detail))

    assert [core.state.refused for core in (asked, led, follows)] == [{reason: 1}] * 3
    assert all(text in warning for warning in warnings(caplog))
    assert len(warnings(caplog)) == 3
    assert "localhost:9002, where we look for replica 2, refuses VoteRequest" in warnings(caplog)[0]


def test_a_peer_with_another_list_gives_no_vote() -> None:
    core = in_role("prospective")
    reply(core, 2, refused_by(VoteResponse, 94, "voters {1, 2}"))
    assert core.role is Role.PROSPECTIVE
    answer_vote(core, 3, granted=True, pre_vote=True)
    assert core.role is Role.CANDIDATE


def leader_change(*voter_ids: int, epoch: int, offset: int = 2) -> bytes:
    voters = tuple(LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in voter_ids)
    record = LeaderChangeMessage(leader_id=3, voters=voters, granting_voters=voters)
    return bytes(encode_control_batch([record], timestamp_ms=1, base_offset=offset, epoch=epoch).data)


@pytest.mark.parametrize(
    ("voter_ids", "epoch", "taken"),
    [((3, 2, 1), 5, True), ((1, 2, 3, 4, 5), 5, False), ((1, 2), 5, False), ((1, 2), 4, True)],
    ids=["the same in any order", "more", "fewer", "an epoch that is over"],
)
def test_what_a_leader_that_counts_other_voters_sends_is_not_acknowledged(
    voter_ids: tuple[int, ...], epoch: int, taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's replicas say nothing of their list but in the first record of an epoch. Older epochs are history."""
    core = follower(1, 1, epoch=5, leader_id=3)
    records = leader_change(*voter_ids, epoch=epoch)
    actions = reply(core, 3, fetch_response(epoch=5, leader_id=3, high_watermark=0, records=records))

    assert any(isinstance(action, AppendToLog) for action in actions) is taken
    assert core.state.refused == ({} if taken else {OTHER_VOTERS: 1})
    assert len(warnings(caplog)) == (0 if taken else 1)


def test_voters_that_stand_in_the_same_answer_are_compared_with_no_list() -> None:
    core = follower(1, 1, epoch=5, leader_id=3)
    records = [KRaftVersionRecord(kraft_version=1), voter_set(1, 2, 3, 4).to_record()]
    both = bytes(encode_control_batch(records, timestamp_ms=1, base_offset=2, epoch=4).data)
    both += leader_change(1, 2, 3, 4, epoch=5, offset=4)
    actions = reply(core, 3, fetch_response(epoch=5, leader_id=3, high_watermark=0, records=both))

    assert sum(len(action.batches) for action in actions if isinstance(action, AppendToLog)) == 2


# Another cluster ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (vote_request(epoch=6, last=LONG, cluster_id="B"), 2),
        (begin_request(epoch=6, cluster_id="B"), 1),
        (fetch_request(epoch=5, offset=2, last_epoch=1, cluster_id="B"), 18),
    ],
    ids=["vote", "begin", "fetch"],
)
def test_another_cluster_is_warned_of_with_both_ids_once_for_each_peer(
    request_: Any, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    core = in_role("unattached")
    for _ in range(3):
        answer = ask(core, saying(request_), version=version)

    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert said(answer) == "cluster 'cluster'"
    assert core.state.refused == {OTHER_CLUSTER: 3}
    (warning,) = warnings(caplog)
    assert "of replica 2 is of cluster 'B', and we are of 'cluster'" in warning


def test_a_replica_of_kafka_is_told_the_error_and_nothing_else() -> None:
    answer = ask(in_role("unattached"), begin_request(epoch=6, cluster_id="B"), version=0)

    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert answer.unknown_tagged_fields == ()


def test_peers_with_ever_other_numbers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    core = in_role("unattached")
    for number in range(2 * WARNINGS_MAX):
        ask(core, vote_request(epoch=6, replica_id=number, cluster_id="x" * 9_999), version=2)

    assert core.state.refused == {OTHER_CLUSTER: 2 * WARNINGS_MAX}
    assert len(warnings(caplog)) == WARNINGS_MAX
    assert max(map(len, warnings(caplog))) < 600


# Another replica than was meant ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory_id", [None, uuid.UUID(int=9)])
def test_a_request_for_another_replica_or_disk_is_warned_of(
    directory_id: uuid.UUID | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The address of voter 4 leads here; or voter 1 has a new disk, of which the asker does not know."""
    core = replica(1, 1, directory_id=uuid.UUID(int=1), election=ElectionState(epoch=5))
    meant = {"voter_id": 4} if directory_id is None else {"voter_id": 1, "voter_directory_id": directory_id}
    for request, version in ((vote_request(epoch=6, last=LONG, **meant), 2), (begin_request(epoch=6, **meant), 1)):
        answer = ask(core, request, version=version)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_VOTER_KEY

    assert core.state.refused == {"meant for another replica": 2}
    (warning,) = warnings(caplog)
    key = ReplicaKey(4) if directory_id is None else ReplicaKey(1, directory_id)
    assert f"VoteRequest of replica 2 means {key}, and we are {core.key}" in warning


def test_who_reaches_another_replica_than_it_meant_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    core = in_role("prospective")
    for _ in range(2):
        reply(core, 2, told_of(VoteResponse, epoch=5, error=ErrorCode.INVALID_VOTER_KEY))
        wait(core)

    assert core.state.refused == {"not the replica that was meant": 2}
    (warning,) = warnings(caplog)
    assert "localhost:9002, where we look for replica 2, answers VoteRequest that it is not 2: another" in warning


def wait(core: Replica) -> None:
    """Let the pause after a refusal pass."""
    core.handle(ResponseReceived(-1, None), core.state.now_ms + 100)


def test_ordinary_batches_are_not_looked_at_for_voters() -> None:
    core = follower(1, 1, epoch=5, leader_id=3)
    data = bytes(encode_batch([b"x"], timestamp_ms=0, base_offset=2, epoch=5).data)
    reply(core, 3, fetch_response(epoch=5, leader_id=3, high_watermark=0, records=data))

    assert core.state.log.end_offset == 3
    assert core.state.refused == {}


def test_a_leader_that_is_reached_on_other_listeners_alone_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody could fetch from it, and nothing but elections without end would say so."""
    core = in_role("unattached")
    where = BeginQuorumEpochRequest.LeaderEndpoint(name="raft", host="localhost", port=9002)
    for epoch in (6, 7):
        ask(core, begin_request(epoch=epoch, leader_endpoints=(where,)), version=1)

    assert core.state.refused == {"no common listener": 2}
    (warning,) = warnings(caplog)
    assert "replica 2 leads and is reached on ['RAFT'], and we ask on 'CONTROLLER'" in warning


def test_a_fetch_under_our_own_id_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    core = leader(1, 1)
    request = fetch_request(epoch=core.epoch, offset=2, last_epoch=1, replica_id=1)
    ask(core, request, version=18)

    assert core.state.refused == {"our own id": 1}
    assert len(warnings(caplog)) == 1
