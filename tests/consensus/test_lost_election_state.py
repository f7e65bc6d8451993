"""A replica that has lost its election state votes again only when nobody can be waiting for the forgotten vote."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

import pytest

from kraftlib.consensus.actions import AppendToLog, PersistElection, SendRequest
from kraftlib.consensus.events import ResponseReceived, TimeoutReached
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Download, Role
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.types import METADATA_TOPIC_ID, ZERO_UUID, ElectionState, OffsetAndEpoch, OffsetRange, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from tests.consensus.build import (
    ask,
    begin_request,
    fetch_response,
    flush,
    outstanding_to,
    partition_of,
    pending_requests,
    replica,
    reply,
    vote_request,
    voter_set,
)

LOST = ElectionState(epoch=2, amnesiac=True)


def amnesiac(*epochs: int, **more: Any) -> Replica:
    return replica(*(epochs or (1, 2)), election=LOST, **more)


def answer(
    core: Replica, voter_id: int, *, epoch: int, leader_id: int | None = None, high_watermark: int = -1
) -> list[Any]:
    """Answer the Fetch that is outstanding to a voter: with an error, unless it leads."""
    outstanding = outstanding_to(core, voter_id)
    leads = leader_id == voter_id
    error = ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
    if epoch > outstanding.request.topics[0].partitions[0].current_leader_epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    partition = FetchResponse.PartitionData(
        error_code=error,
        high_watermark=high_watermark if error is ErrorCode.NONE else -1,
        current_leader=FetchResponse.LeaderIdAndEpoch(
            leader_id=-1 if leader_id is None else leader_id, leader_epoch=epoch
        ),
        records=b"",
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return core.handle(ResponseReceived(outstanding.correlation_id, FetchResponse(responses=(topic,))), _now(core))


def _now(core: Replica) -> int:
    return core.state.now_ms


def wait(core: Replica, ms: int) -> list[Any]:
    actions = []
    end = _now(core) + ms
    while (deadline := core.deadline_ms()) is not None and deadline <= end:
        actions += core.handle(TimeoutReached(), deadline)
    return actions + core.handle(TimeoutReached(), end)


def is_asked(core: Replica, voter_id: int) -> bool:
    return any(request.destination == voter_id for request in pending_requests(core))


def votes(core: Replica, *, epoch: int, pre_vote: bool = False) -> bool:
    """Whether a candidate that has everything gets this replica's vote."""
    response = ask(core, vote_request(epoch=epoch, last=(99, epoch - 1), pre_vote=pre_vote), version=2)
    return bool(partition_of(response).vote_granted)


@pytest.mark.parametrize("pre_vote", [False, True])
def test_it_gives_no_vote_in_any_epoch(pre_vote: bool) -> None:
    core = amnesiac()

    assert not votes(core, epoch=2, pre_vote=pre_vote)
    assert not votes(core, epoch=9, pre_vote=pre_vote)
    assert core.state.election.amnesiac


def test_it_never_stands(caplog: pytest.LogCaptureFixture) -> None:
    core = amnesiac()
    wait(core, 60_000)

    assert (core.role, core.epoch) == (Role.UNATTACHED, 2)
    assert "neither votes nor stands" in caplog.text


def test_nor_does_a_sole_voter() -> None:
    """Nobody can tell it what it forgot; the client refuses to start."""
    core = amnesiac(voters=voter_set(1))
    wait(core, 60_000)

    assert core.role is Role.UNATTACHED


def test_it_asks_every_voter_for_its_epoch() -> None:
    core = amnesiac()

    assert {voter for voter in (1, 2, 3) if is_asked(core, voter)} == {2, 3}


def follows(core: Replica, *, epoch: int, high_watermark: int = 2) -> list[Any]:
    """Let replica 2 be the leader of this epoch, and answer Fetches until it has named its high watermark."""
    actions = answer(core, 2, epoch=epoch, leader_id=2)
    wait(core, 3_000)
    for _ in range(3):
        if is_asked(core, 2):
            actions += answer(core, 2, epoch=epoch, leader_id=2, high_watermark=high_watermark)
    return actions


@pytest.mark.parametrize("epoch", [2, 3, 7])
def test_it_votes_again_when_all_have_told_and_it_has_caught_up(epoch: int) -> None:
    core = amnesiac()
    answer(core, 3, epoch=2)
    actions = follows(core, epoch=epoch)

    assert core.role is Role.FOLLOWER
    assert not core.state.election.amnesiac
    persisted = [action.election.amnesiac for action in actions if isinstance(action, PersistElection)]
    assert persisted[-1] is False, "durably: after a restart it must not be asked to prove it again"
    assert not votes(core, epoch=epoch), "in the epoch of a known leader nobody gets a vote"
    assert votes(core, epoch=epoch + 1)


def test_one_voter_that_does_not_answer_holds_it_up() -> None:
    """The forgotten vote may have been for just that one."""
    core = amnesiac()
    follows(core, epoch=3)
    wait(core, 10_000)

    assert core.state.election.amnesiac
    assert not votes(core, epoch=9)


def test_it_waits_for_a_leader_of_the_newest_epoch_that_was_told() -> None:
    core = amnesiac()
    follows(core, epoch=3)
    answer_when_asked(core, 3, epoch=8)

    assert core.epoch == 8
    assert core.state.election.amnesiac
    follows_again(core, epoch=8)
    assert not core.state.election.amnesiac


def answer_when_asked(core: Replica, voter_id: int, *, epoch: int) -> None:
    for _ in range(100):
        if is_asked(core, voter_id):
            answer(core, voter_id, epoch=epoch)
            return
        wait(core, 100)
    raise AssertionError(f"voter {voter_id} is never asked")


def follows_again(core: Replica, *, epoch: int) -> None:
    for _ in itertools.repeat(None, 100):
        if is_asked(core, 2):
            answer(core, 2, epoch=epoch, leader_id=2, high_watermark=2 if core.role is Role.FOLLOWER else -1)
            if core.role is Role.FOLLOWER and not core.state.election.amnesiac:
                return
        wait(core, 100)


def led_by_2(core: Replica, *, epoch: int = 3) -> None:
    """Let 3 tell its epoch, and 2 be the leader; a Fetch to it is outstanding then."""
    answer(core, 3, epoch=2)
    answer(core, 2, epoch=epoch, leader_id=2)
    wait(core, 3_000)
    assert is_asked(core, 2)


def sends(core: Replica, *batches: Batch, high_watermark: int, epoch: int = 3) -> None:
    """Let the leader answer with these batches, and the disk have them."""
    records = b"".join(bytes(batch.data) for batch in batches)
    reply(core, 2, fetch_response(epoch=epoch, leader_id=2, records=records, high_watermark=high_watermark))
    flush(core)


def one_record(offset: int, epoch: int = 3) -> Batch:
    return encode_batch([b"x"], timestamp_ms=0, base_offset=offset, epoch=epoch)


def test_it_waits_until_everything_that_the_leader_has_is_here() -> None:
    """Only an answer without records says so: others may be limited in size, whatever high watermark they name."""
    core = amnesiac()
    led_by_2(core)
    for offset, high_watermark in ((2, 3), (3, 3), (4, 5)):
        sends(core, one_record(offset), high_watermark=high_watermark)
        assert core.state.election.amnesiac

    sends(core, high_watermark=5)
    assert not core.state.election.amnesiac


def test_it_does_not_let_the_leader_hold_its_fetches_until_it_has_reached_the_end() -> None:
    """A held Fetch is answered by the next record: with a busy leader there would be no answer without any."""
    core = amnesiac()
    led_by_2(core)
    assert outstanding_to(core, 2).request.max_wait_ms == 0
    sends(core, one_record(2), high_watermark=3)
    assert outstanding_to(core, 2).request.max_wait_ms == 0
    sends(core, high_watermark=3)
    wait(core, 100)

    assert outstanding_to(core, 2).request.max_wait_ms == core.state.config.fetch_max_wait_ms


def test_a_leader_whose_end_was_reached_says_nothing_of_the_next_ones() -> None:
    """What the next leader has may be here only in part."""
    core = amnesiac()
    follows(core, epoch=3)
    ask(core, begin_request(epoch=4, leader_id=2))
    answer_when_asked(core, 3, epoch=4)
    assert (core.role, core.epoch) == (Role.FOLLOWER, 4)
    assert core.state.election.amnesiac

    sends(core, one_record(2, epoch=4), high_watermark=3, epoch=4)
    assert core.state.election.amnesiac
    sends(core, high_watermark=3, epoch=4)
    assert not core.state.election.amnesiac


def test_a_high_watermark_that_the_leader_does_not_know_yet_is_none() -> None:
    core = amnesiac()
    answer(core, 3, epoch=2)
    follows(core, epoch=3, high_watermark=-1)

    assert core.state.election.amnesiac


def test_it_fetches_as_nobody_so_that_no_leader_counts_it() -> None:
    """It may have elected a newer leader, who lacks what an older one would commit with its help."""
    core = amnesiac()
    requests = [a.request for a in wait(core, 3_000) if isinstance(a, SendRequest)]
    fetches = [request for request in requests if isinstance(request, FetchRequest)]

    assert {fetch.replica_state.replica_id for fetch in fetches} == {-1}
    assert {fetch.topics[0].partitions[0].replica_directory_id for fetch in fetches} == {ZERO_UUID}


def test_it_says_who_it_is_again_once_it_votes_again() -> None:
    core = amnesiac()
    answer(core, 3, epoch=2)
    actions = follows(core, epoch=3, high_watermark=2)

    assert not core.state.election.amnesiac
    requests = [a.request for a in actions + wait(core, 600) if isinstance(a, SendRequest)]
    fetches = [request for request in requests if isinstance(request, FetchRequest)]
    assert fetches[-1].replica_state.replica_id == 1


def test_the_answer_to_its_last_fetch_as_nobody_is_a_sign_of_life() -> None:
    """It votes again while that Fetch is under way, and takes nothing from the answer. Its leader lives all the same:
    with a fetch timeout of twice the time for which a leader may hold a Fetch, an election would begin."""
    core = amnesiac()
    answer(core, 2, epoch=3, leader_id=2)
    wait(core, 100)
    sends(core, high_watermark=2)
    wait(core, 100)
    timeout_ms, asked = core.state.config.fetch_timeout_ms, outstanding_to(core, 2)
    answer_when_asked(core, 3, epoch=3)
    assert not core.state.election.amnesiac
    assert outstanding_to(core, 2) is asked
    wait(core, timeout_ms - 400)
    actions = reply(core, 2, fetch_response(epoch=3, leader_id=2, records=bytes(one_record(2).data), high_watermark=3))
    assert not [action for action in actions if isinstance(action, AppendToLog)]
    requests = [a.request for a in wait(core, 500) if isinstance(a, SendRequest)]
    fetches = [request for request in requests if isinstance(request, FetchRequest)]

    assert core.role is Role.FOLLOWER
    assert [fetch.replica_state.replica_id for fetch in fetches] == [1]


def test_it_follows_the_leader_that_introduces_itself_and_confirms_nothing() -> None:
    core = amnesiac()
    response = ask(core, begin_request(epoch=3, leader_id=3))

    assert partition_of(response).error_code == ErrorCode.INVALID_VOTER_KEY
    assert (core.role, core.epoch) == (Role.FOLLOWER, 3)


def test_it_does_not_vote_again_while_its_log_is_damaged_or_about_to_be_replaced() -> None:
    """Where the log ends then says nothing of what is in it: a snapshot may take acknowledged records with it."""
    core = amnesiac()
    answer(core, 3, epoch=2)
    core.state.log.holes = [OffsetRange(start_offset=0, end_offset=1)]
    follows(core, epoch=3)
    assert core.state.election.amnesiac

    core.state.log.holes = []
    core.state.filling = None
    core.state.role_state.download = Download(  # type: ignore[union-attr]
        snapshot_id=OffsetAndEpoch(offset=1, epoch=1), source_epoch=5
    )
    core.handle(TimeoutReached(), _now(core) + 1)
    assert core.state.election.amnesiac

    core.state.role_state.download = None  # type: ignore[union-attr]
    follows_again(core, epoch=3)
    assert not core.state.election.amnesiac


def test_a_replica_that_knows_its_votes_asks_nobody() -> None:
    core = replica(1, 2, election=ElectionState(epoch=2))

    assert sum(is_asked(core, voter) for voter in (2, 3)) <= 1
    assert votes(core, epoch=9)


def test_it_waits_until_what_is_committed_is_durable_here() -> None:
    """What is in its log only could be lost once more, and with it the reason to vote again."""
    core = amnesiac()
    led_by_2(core)
    records = bytes(one_record(2).data)
    reply(core, 2, fetch_response(epoch=3, leader_id=2, records=records, high_watermark=3))
    assert (core.state.log.end_offset, core.state.log.flushed_offset) == (3, 2)
    wait(core, 1_000)
    assert core.state.election.amnesiac
    assert not is_asked(core, 2)

    flush(core)
    sends(core, high_watermark=3)
    assert not core.state.election.amnesiac


def test_an_answer_without_an_epoch_tells_nothing() -> None:
    core = amnesiac()
    answer(core, 3, epoch=-1)
    wait(core, 3_000)

    assert is_asked(core, 3)


@pytest.mark.parametrize(
    ("epoch", "leader_id"),
    [(2 + 1_000_000 + 1, None), (3, 1)],
    ids=["an epoch that is too far ahead", "an epoch that it would lead itself"],
)
def test_an_epoch_that_it_does_not_take_over_is_not_waited_for(epoch: int, leader_id: int | None) -> None:
    """It would never vote again: nobody reaches an epoch that only a damaged or a foreign answer has named."""
    core = amnesiac()
    answer(core, 3, epoch=epoch, leader_id=leader_id)
    assert core.epoch == 2

    answer_when_asked(core, 3, epoch=2)
    follows_again(core, epoch=2)
    assert not core.state.election.amnesiac


def key(replica_id: int) -> ReplicaKey:
    """A replica with the disk that belongs to it."""
    return ReplicaKey(replica_id, UUID(int=1_000 + replica_id))


def test_it_waits_for_a_voter_that_only_an_uncommitted_record_leaves_out() -> None:
    """Its forgotten vote may have been for that one, whom all who lack the record may elect with it."""
    controls = [
        [KRaftVersionRecord(kraft_version=1), voter_set(*(key(number) for number in (1, 2, 3, 4))).to_record()],
        [voter_set(*(key(number) for number in (1, 2, 3))).to_record()],
    ]
    log = LogView.build()
    for offset, records in zip((0, 2), controls, strict=True):
        log.append([encode_control_batch(records, timestamp_ms=0, base_offset=offset, epoch=2)])
    log.flushed_offset = log.end_offset
    core = replica(log=log, directory_id=key(1).directory_id, election=LOST)
    assert core.voters.ids == (1, 2, 3)

    for high_watermark in (2, 3):
        for _ in range(12):
            for voter_id in (2, 3):
                if is_asked(core, voter_id):
                    answer(core, voter_id, epoch=2, leader_id=3, high_watermark=high_watermark)
            wait(core, 60)
        assert core.high_watermark == high_watermark
        assert (core.state.amnesia is None) == (high_watermark == 3), "until the removal is committed"


def test_it_does_not_vote_again_before_the_change_that_removes_it_is_committed() -> None:
    """Nobody gave it that change as a voter: its longer log would refuse the others the vote that they still need."""
    members = [key(number) for number in (1, 2, 3)]
    first = [KRaftVersionRecord(kraft_version=1), voter_set(*members).to_record()]
    log = LogView.build()
    log.append([encode_control_batch(first, timestamp_ms=0, base_offset=0, epoch=3)])
    log.flushed_offset = log.end_offset
    core = replica(log=log, directory_id=key(1).directory_id, election=ElectionState(epoch=3, amnesiac=True))
    led_by_2(core)
    removing = encode_control_batch([voter_set(*members[1:]).to_record()], timestamp_ms=0, base_offset=2, epoch=3)

    sends(core, removing, high_watermark=2)
    sends(core, high_watermark=2)
    assert core.state.election.amnesiac
    wait(core, 100)
    sends(core, high_watermark=3)
    assert not core.state.election.amnesiac


def test_it_waits_for_a_voter_that_only_a_record_beyond_the_high_watermark_names() -> None:
    """Its forgotten vote may have been for that one, which others who have the record may elect with it."""
    members = [key(number) for number in (1, 2, 3, 4)]
    first = [KRaftVersionRecord(kraft_version=1), voter_set(*members[:3]).to_record()]
    log = LogView.build()
    log.append([encode_control_batch(first, timestamp_ms=0, base_offset=0, epoch=3)])
    log.flushed_offset = log.end_offset
    core = replica(log=log, directory_id=key(1).directory_id, election=ElectionState(epoch=3, amnesiac=True))
    answer(core, 3, epoch=3)
    answer(core, 2, epoch=3, leader_id=2)
    wait(core, 3_000)
    adding = encode_control_batch([voter_set(*members).to_record()], timestamp_ms=0, base_offset=4, epoch=3)

    sends(core, one_record(2), one_record(3), high_watermark=4)  # limited in size: the leader has one batch more
    assert core.state.election.amnesiac
    assert not is_asked(core, 4)
    sends(core, adding, high_watermark=4)
    assert is_asked(core, 4)
    sends(core, high_watermark=4)
    assert core.state.election.amnesiac

    answer(core, 4, epoch=4)
    assert core.state.election.amnesiac
    assert not votes(core, epoch=4)
