"""Orders and bounds of the messages that a slip could turn round unnoticed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import SendResponse, SubmitControl, TruncateLog
from kraftlib.consensus.events import TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.responses import voter_only_error
from kraftlib.consensus.roles import Role
from kraftlib.consensus.voter_changes import handle_probe_response
from kraftlib.types import METADATA_TOPIC, ElectionState, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochResponse
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.vote import VoteResponse
from tests.consensus.build import (
    SNAPSHOT,
    as_leader,
    ask,
    begin_request,
    end_request,
    fetch_request,
    fetch_response,
    flush,
    follower,
    leader,
    log_view,
    outstanding_to,
    park,
    partition_of,
    pending_requests,
    replica,
    reply,
    requests,
    snapshot_request,
    tell,
    vote_request,
    voter_set,
)
from tests.consensus.test_voter_changes import add_request, dynamic_leader, remove_request, supports, update_request

# --- checks ----------------------------------------------------------------------------------------------------------


def test_an_epoch_that_is_over_is_told_before_an_id_that_cannot_be() -> None:
    """KIP-595, Vote: e < local epoch -> FENCED_LEADER_EPOCH; then id < 0 -> INVALID_REQUEST.

    The first tells the asker who leads; the second stops a Kafka peer.
    """
    assert voter_only_error(follower(1, epoch=5).state, 4, -1) == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (vote_request(epoch=4, replica_id=-1), VoteResponse),
        (begin_request(epoch=4, leader_id=-1), BeginQuorumEpochResponse),
        (end_request(epoch=4, leader_id=-1), EndQuorumEpochResponse),
    ],
    ids=["vote", "begin", "end"],
)
def test_nobody_of_an_older_epoch_is_told_the_present_leader(request_: Any, kind: type) -> None:
    """KIP-595: "voter only" is one check of Vote, BeginQuorumEpoch and EndQuorumEpoch, in one order."""
    response = ask(follower(1, epoch=5, leader_id=2), request_, version=1)
    partition = partition_of(response)

    assert isinstance(response, kind)
    assert (partition.error_code, partition.leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, 2)


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_who_is_fenced_in_its_own_epoch_follows_the_named_leader_and_asks_it_at_once(error: ErrorCode) -> None:
    """KIP-595, Vote and Fetch: FENCED_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER -> maybe-transition, ok, newer or not.

    "Ok" is no backoff, though the answer is an error.
    """
    core = replica(1, election=ElectionState(epoch=5))
    asked = pending_requests(core)[0].destination
    actions = reply(core, asked, fetch_response(epoch=5, leader_id=asked, error=error))

    assert core.leader_and_epoch == LeaderAndEpoch(asked, 5)
    assert [request.destination for request in requests(actions, FetchRequest)] == [asked]


# --- membership ------------------------------------------------------------------------------------------------------


def static_leader() -> Replica:
    """A leader of kraft.version 0 that has committed its first batch."""
    core = leader()
    flush(core)
    tell(core, fetch_request(epoch=1, offset=1, last_epoch=1), version=18, request_id=50)
    assert core.high_watermark == 1
    return core


@pytest.mark.parametrize("dynamic", [True, False], ids=["kraft.version 1", "kraft.version 0"])
def test_a_voter_that_updates_itself_is_heard_of(dynamic: bool) -> None:
    """KIP-853, UpdateRaftVoter: success counts as contact for check quorum."""
    core = dynamic_leader() if dynamic else static_leader()
    updated_ms = core.state.now_ms + 1_000
    tell(core, update_request(2, 7, epoch=core.epoch), now_ms=updated_ms)

    assert as_leader(core).check_quorum_deadline_ms == updated_ms + core.state.config.fetch_timeout_ms * 3 // 2


def test_an_update_that_is_refused_keeps_nobody_in_office() -> None:
    """KIP-853, UpdateRaftVoter: *success* counts as contact; of a voter that is too old, nothing does."""
    core = dynamic_leader()
    before = as_leader(core).check_quorum_deadline_ms
    tell(core, update_request(2, 7, epoch=core.epoch, low=0, high=0), now_ms=core.state.now_ms + 1_000)

    assert as_leader(core).check_quorum_deadline_ms == before


def test_an_update_without_the_finalized_version_is_invalid_before_anybody_asks_whose_it_is() -> None:
    """KIP-853, UpdateRaftVoter: range -> INVALID_REQUEST; unknown voter -> VOTER_NOT_FOUND."""
    core = dynamic_leader()

    assert ask(core, update_request(9, 7, epoch=1, low=0, high=0)).error_code == ErrorCode.INVALID_REQUEST
    assert ask(core, update_request(9, 7, epoch=1), request_id=78).error_code == ErrorCode.VOTER_NOT_FOUND


def test_a_version_range_does_not_begin_below_0() -> None:
    """KIP-853, UpdateRaftVoter: min < 0, max < 0, max < min -> INVALID_REQUEST."""
    core = dynamic_leader()
    actions = tell(core, update_request(2, 7, epoch=core.epoch, low=-1, high=1))

    assert [action.response.error_code for action in actions if isinstance(action, SendResponse)] == [
        ErrorCode.INVALID_REQUEST
    ]
    assert not [action for action in actions if isinstance(action, SubmitControl)]


def test_who_is_a_voter_already_is_told_so_only_when_a_change_could_be_made() -> None:
    """KIP-853, AddRaftVoter: *after the common checks*, id already in the set -> DUPLICATE_VOTER.

    The set may be about to change: what is pending, or not known to be committed, may take that very voter out of it.
    """
    pending = dynamic_leader()
    tell(pending, remove_request(3))
    for core, error in (
        (pending, ErrorCode.REQUEST_TIMED_OUT),
        (dynamic_leader(committed=False), ErrorCode.REQUEST_TIMED_OUT),
        (static_leader(), ErrorCode.UNSUPPORTED_VERSION),
        (dynamic_leader(), ErrorCode.DUPLICATE_VOTER),
    ):
        assert ask(core, add_request(2), request_id=78).error_code == error


def test_another_replicas_versions_are_not_taken_for_the_new_voters() -> None:
    """KIP-853, AddRaftVoter: on its answer, matched by node id (others are ignored)."""
    core = dynamic_leader()
    tell(core, add_request())
    probe = outstanding_to(core, 4)
    other = attrs.evolve(probe, destination=5)

    assert handle_probe_response(core.state, other, supports(0, 1)) == []
    assert as_leader(core).change is not None
    assert [type(action) for action in handle_probe_response(core.state, probe, supports(0, 1))] == [SubmitControl]


def test_a_voter_that_says_its_versions_twice_is_added_once() -> None:
    """KIP-853, Reference explanation: at most one voter is added between consecutive voter sets, and by one record."""
    core = dynamic_leader()
    tell(core, add_request())
    probe = outstanding_to(core, 4)

    assert [type(action) for action in handle_probe_response(core.state, probe, supports(0, 1))] == [SubmitControl]
    assert handle_probe_response(core.state, probe, supports(0, 1)) == []


# --- replication -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("known", "wait_ms"), [(1, 500), (0, 2)], ids=["knows it", "lags"])
def test_a_fetch_that_knows_the_high_watermark_waits_its_whole_time(known: int, wait_ms: int) -> None:
    """KIP-1166: answer at once if request HighWatermark < answer's HighWatermark.

    Else an idle leader and its followers would ask and answer each other without end.
    """
    core = static_leader()
    began_ms = core.state.now_ms
    park(core, 3, 90, high_watermark=known)

    for after_ms, answered in ((wait_ms - 1, []), (wait_ms, [90])):
        actions = core.handle(TimeoutReached(), began_ms + after_ms)
        sent = [action.request_id for action in actions if isinstance(action, SendResponse)]
        assert [request_id for request_id in sent if request_id == 90] == answered


@pytest.mark.parametrize("replica_id", [2, 9], ids=["voter", "observer"])
def test_a_fetch_of_an_older_version_that_follows_records_is_told_of_their_commit_soon(replica_id: int) -> None:
    """Before KIP-1166 a Fetch does not say what its sender knows.

    Its records left before they were committed. Told of their commit only at the end of its wait, a broker of Kafka 3.9
    would apply each change half a second late.
    """
    core = leader()
    flush(core)
    park(core, 3)
    assert core.high_watermark == 1
    asked = fetch_request(epoch=1, offset=1, last_epoch=1, replica_id=replica_id)
    for request_id, wait_ms in ((90, 2), (91, 500)):  # no records have come since the first
        began_ms = core.state.now_ms
        tell(core, asked, version=17, request_id=request_id)
        for after_ms, answered in ((wait_ms - 1, []), (wait_ms, [request_id])):
            actions = core.handle(TimeoutReached(), began_ms + after_ms)
            sent = [action.request_id for action in actions if isinstance(action, SendResponse)]
            assert [each for each in sent if each == request_id] == answered


@pytest.mark.parametrize(("ago_ms", "told"), [(1_000, [2]), (999, [])])
def test_a_voter_that_has_not_fetched_for_just_half_the_fetch_timeout_is_told_who_leads(
    ago_ms: int, told: list[int]
) -> None:
    """BeginQuorumEpoch goes to those whose last Fetch is *at least* fetch.timeout/2 ago, or never was (KAFKA-16926)."""
    core = leader(1, 1)
    began_ms = core.state.now_ms
    for voter_id in (2, 3):
        acknowledge(core, voter_id)
    for voter_id, fetched_ms in ((2, began_ms + 1_000 - ago_ms), (3, began_ms + 1)):
        core.handle(TimeoutReached(), fetched_ms)
        park(core, voter_id, request_id=voter_id)
    actions = core.handle(TimeoutReached(), began_ms + 1_000)

    assert [request.destination for request in requests(actions, BeginQuorumEpochRequest)] == told


def acknowledge(core: Replica, voter_id: int) -> None:
    """Let a voter answer the leader that has introduced itself."""
    kind = BeginQuorumEpochResponse
    partition = kind.PartitionData(leader_id=core.key.id, leader_epoch=core.epoch)
    reply(core, voter_id, kind(topics=(kind.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),)))


@pytest.mark.parametrize(
    ("epochs", "diverging", "end"),
    [((1, 1, 1, 1, 3), (3, 2), 4), ((1, 1, 2, 2), (3, 0), 3)],
    ids=["our epoch before it is longer", "epoch 0"],
)
def test_a_follower_cuts_where_its_own_log_ends_that_epoch(
    epochs: tuple[int, ...], diverging: tuple[int, int], end: int
) -> None:
    """KIP-595, Fetch: (E, O) = our end_for(epoch); E == epoch -> min(O, EndOffset); else -> to O.

    And for epoch 0 -> to min(EndOffset, LEO).
    """
    core = follower(*epochs, epoch=5, leader_id=2)
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, diverging=diverging))

    assert [action for action in actions if isinstance(action, TruncateLog)] == [TruncateLog(end)]


def test_epoch_0_never_cuts_more_than_the_leaders_end_says() -> None:
    """KIP-595, Fetch: epoch 0 -> to min(EndOffset, LEO), which here drops nothing."""
    core = follower(1, 1, 2, 2, epoch=5, leader_id=2)
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, diverging=(9, 0)))

    assert not [action for action in actions if isinstance(action, TruncateLog)]
    assert core.state.log.end_offset == 4


# --- snapshots -------------------------------------------------------------------------------------------------------


def snapshot_leader() -> Replica:
    """A leader of voters with disks, which has a snapshot."""
    keys = [ReplicaKey(number, UUID(int=1_000 + number)) for number in (1, 2, 3)]
    voters = voter_set(*keys)
    log = log_view(3, 3, start=8, snapshots=(SNAPSHOT,), voters=voters)
    return leader(log=log, voters=voters, directory_id=keys[0].directory_id)


@pytest.mark.parametrize(
    ("directory", "counts"), [(1_002, True), (99, False), (0, False)], ids=["its disk", "another disk", "no disk"]
)
def test_a_download_is_a_voters_sign_of_life_only_if_its_own_disk_asks(directory: int, counts: bool) -> None:
    """KIP-595: the set of voters (*matching key*) that sent a Fetch, a FetchSnapshot or an Update."""
    core = snapshot_leader()
    before, later_ms = as_leader(core).check_quorum_deadline_ms, core.state.now_ms + 100
    request = snapshot_request(SNAPSHOT, epoch=core.epoch)
    partition = attrs.evolve(partition_of(request), replica_directory_id=UUID(int=directory))
    topic = attrs.evolve(request.topics[0], partitions=(partition,))
    tell(core, attrs.evolve(request, topics=(topic,)), now_ms=later_ms)

    assert as_leader(core).check_quorum_deadline_ms == (later_ms + 3_000 if counts else before)


@pytest.mark.parametrize("epoch_shift", [-1, 0, 1])
def test_a_snapshot_of_an_unknown_topic_is_refused_as_such_in_every_epoch(epoch_shift: int) -> None:
    """KIP-630, FetchSnapshot: unknown topic -> UNKNOWN_TOPIC_OR_PARTITION; *then* the leader-only check."""
    core = snapshot_leader()
    request = snapshot_request(SNAPSHOT, epoch=core.epoch + epoch_shift, topic="other")

    assert partition_of(ask(core, request)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_who_does_not_lead_knows_no_other_topic_either() -> None:
    """KIP-630, FetchSnapshot: the topic is looked at before the role."""
    core = follower(1, epoch=5, leader_id=2)
    response = ask(core, snapshot_request(SNAPSHOT, epoch=5, topic="other"))

    assert core.role is Role.FOLLOWER
    assert partition_of(response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
