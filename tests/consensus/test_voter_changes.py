"""Membership, one voter at a time (KIP-853, AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import SendRecords, SendResponse, SubmitControl
from kraftlib.consensus.events import (
    Failure,
    RequestFailed,
    RequestReceived,
    RetentionDue,
    SnapshotCreated,
    TimeoutReached,
)
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.consensus.voter_changes import read_listeners
from kraftlib.errors import InvariantError
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from tests.consensus.build import (
    LISTENER,
    ask,
    begin_request,
    commits,
    fetch_request,
    flush,
    leader,
    outstanding_to,
    park,
    place,
    replica,
    reply,
    requests,
    submit,
    submit_controls,
    tell,
    voter_set,
)


def key(replica_id: int) -> ReplicaKey:
    """A replica with the disk that belongs to it."""
    return ReplicaKey(replica_id, UUID(int=1_000 + replica_id))


def dynamic_log(*ids: int) -> LogView:
    """An empty log whose bootstrap checkpoint names these voters."""
    log = LogView.build(snapshots=(BOOTSTRAP_SNAPSHOT,))
    controls = (KRaftVersionRecord(kraft_version=1), voter_set(*(key(number) for number in ids)).to_record())
    log.observe_snapshot(BOOTSTRAP_SNAPSHOT, controls)
    return log


def fetch(core: Replica, replica_id: int, request_id: int) -> list[Any]:
    """A Fetch of a replica that has everything."""
    return park(core, replica_id, request_id, replica_directory_id=UUID(int=1_000 + replica_id))


def dynamic_leader(*ids: int, committed: bool = True, **settings: Any) -> Replica:
    """A leader of kraft.version 1, which has committed its first batch; observer 4 is caught up."""
    core = leader(log=dynamic_log(*(ids or (1, 2, 3))), directory_id=key(1).directory_id, **settings)
    flush(core)
    fetch(core, 4, 48)
    if committed:
        fetch(core, 2, 51)
        assert core.high_watermark == core.state.log.end_offset
    return core


def add_request(voter_id: int = 4, **more: Any) -> AddRaftVoterRequest:
    """Add a voter."""
    where = place(voter_id)
    listener = AddRaftVoterRequest.Listener(name=more.pop("name", LISTENER), host=where.host, port=where.port)
    return AddRaftVoterRequest(
        cluster_id="cluster",
        timeout_ms=1,
        voter_id=voter_id,
        voter_directory_id=UUID(int=1_000 + voter_id),
        listeners=(listener,),
        **more,
    )


def remove_request(voter_id: int, directory: int | None = None) -> RemoveRaftVoterRequest:
    """Remove a voter."""
    disk = UUID(int=1_000 + voter_id if directory is None else directory)
    return RemoveRaftVoterRequest(cluster_id="cluster", voter_id=voter_id, voter_directory_id=disk)


def supports(low: int, high: int) -> ApiVersionsResponse:
    """What a replica says of itself."""
    feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=low, max_version=high)
    return ApiVersionsResponse(supported_features=(feature,))


def append_submitted(core: Replica, actions: list[Any]) -> list[Any]:
    """Do what the executor does with SubmitControl."""
    submitted = next(action for action in actions if isinstance(action, SubmitControl))
    return submit_controls(core, *submitted.records)


def append_one(core: Replica) -> None:
    """Append a record that only this replica has, durably."""
    submit(core)
    flush(core)


def answers(actions: list[Any], request_id: int = 77) -> list[int]:
    """Error codes of the answers to one request."""
    return [
        action.response.error_code
        for action in actions
        if isinstance(action, SendResponse) and action.request_id == request_id
    ]


def test_a_leader_that_was_alone_gives_its_first_follower_time() -> None:
    """While nobody else was needed nobody was missed; from the addition on a majority of two must fetch."""
    core = replica(log=dynamic_log(1), directory_id=key(1).directory_id)
    flush(core)
    core.handle(TimeoutReached(), 60_000)
    fetch(core, 4, 50)
    tell(core, add_request())
    append_submitted(core, reply(core, 4, supports(0, 1)))
    flush(core)

    core.handle(TimeoutReached(), core.state.now_ms + 2_999)
    assert core.role is Role.LEADER
    core.handle(TimeoutReached(), core.state.now_ms + 1)
    assert core.role is Role.RESIGNED


def test_an_auto_joining_voter_is_answered_at_the_append() -> None:
    """It could not fetch while it waits for the commit that its own Fetch is needed for (scenario M6)."""
    core = dynamic_leader()
    tell(core, add_request(ack_when_committed=False), version=1)

    assert answers(append_submitted(core, reply(core, 4, supports(0, 1)))) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("request_", "error"),
    [(add_request(-1), ErrorCode.INVALID_REQUEST), (remove_request(2, directory=0), ErrorCode.INVALID_REQUEST)],
    ids=["no voter", "no disk"],
)
def test_an_impossible_change_is_refused(request_: Any, error: ErrorCode) -> None:
    """With Kafka's codes; nothing is appended."""
    core = dynamic_leader()
    end = core.state.log.end_offset

    assert ask(core, request_).error_code == error
    assert core.state.log.end_offset == end


def test_a_voter_that_does_not_fetch_is_not_added() -> None:
    """It would take a majority away that it does not help to reach."""
    core = dynamic_leader()
    tell(core, add_request(5))

    assert answers(reply(core, 5, supports(0, 1))) == [ErrorCode.REQUEST_TIMED_OUT]


def test_who_adds_a_voter_that_is_silent_is_told_that_nothing_was_changed() -> None:
    """Its question and the change run out together: nothing was appended that could still be committed."""
    core = dynamic_leader()
    fetch(core, 4, 4)
    tell(core, add_request())
    actions = core.handle(TimeoutReached(), core.state.now_ms + core.state.config.request_timeout_ms)
    (answer,) = [action.response for action in actions if isinstance(action, SendResponse) and action.request_id == 77]

    assert (answer.error_code, "nothing was changed" in answer.error_message) == (ErrorCode.REQUEST_TIMED_OUT, True)


def test_one_of_two_hands_over_before_it_is_removed() -> None:
    """Had it appended its own removal and died, the other would have the shorter log and nobody could be elected."""
    core = dynamic_leader(1, 2)
    append_one(core)
    actions = tell(core, remove_request(1))
    assert (answers(actions), core.role) == ([], Role.LEADER)
    assert not any(isinstance(action, SubmitControl) for action in actions)

    actions = fetch(core, 2, 60)

    assert core.role is Role.RESIGNED
    assert answers(actions) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def leader_of_four() -> Replica:
    """A leader of voters 1 to 4, all of which have just fetched everything."""
    core = dynamic_leader()
    fetch(core, 4, 52)
    tell(core, add_request(4))
    append_submitted(core, reply(core, 4, supports(0, 1)))
    flush(core)
    for voter_id in (2, 3, 4):
        fetch(core, voter_id, 50 + voter_id)
    assert (core.high_watermark, core.voters.ids) == (core.state.log.end_offset, (1, 2, 3, 4))
    return core


def test_a_leader_whose_vote_those_that_stay_would_need_hands_over_before_it_is_removed() -> None:
    """One of four is dead. The two that stay and live are no majority of four, should only our log have the removal."""
    core = leader_of_four()
    for _ in range(3):
        core.handle(TimeoutReached(), core.state.now_ms + 1_500)
        fetch(core, 2, 62)
        fetch(core, 3, 63)

    assert answers(tell(core, remove_request(1))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert core.role is Role.RESIGNED
    assert core.voters.ids == (1, 2, 3, 4)


def test_a_leader_of_four_that_all_live_writes_its_own_removal() -> None:
    core = leader_of_four()

    append_submitted(core, tell(core, remove_request(1)))
    assert core.voters.ids == (2, 3, 4)


def records_sent(actions: list[Any]) -> list[int]:
    """The requests that are answered with records."""
    return [action.request_id for action in actions if isinstance(action, SendRecords)]


def test_one_of_two_that_removes_the_other_tells_it_only_once_that_is_committed() -> None:
    """Had the removed one the only copy, it would be no voter and have the longer log: nobody could be elected."""
    core = dynamic_leader(1, 2)
    actions = append_submitted(core, tell(core, remove_request(2)))
    assert core.voters.ids == (1,)
    assert not records_sent(actions)
    offset = core.state.log.end_offset - 1
    late = fetch_request(epoch=1, offset=offset, last_epoch=1, replica_id=4)
    assert not records_sent(tell(core, late, version=18, request_id=61))

    actions = flush(core)
    assert records_sent(actions) == [48, 51, 61]
    assert answers(actions) == [ErrorCode.NONE]
    late = fetch_request(epoch=1, offset=offset, last_epoch=1, replica_id=4)
    assert records_sent(tell(core, late, version=18, request_id=62)) == [62]


def test_who_is_removed_hears_of_it_only_once_it_is_committed() -> None:
    """If the leader died while the removed one alone had the record, its longer log would refuse the others the vote
    that they need: one dead replica of three, and nobody could be elected."""
    core = dynamic_leader(1, 2, 3)
    offset = core.state.log.end_offset
    fetch(core, 3, 63)

    actions = append_submitted(core, tell(core, remove_request(3)))
    assert records_sent(actions) == [51]
    again = fetch_request(epoch=1, offset=offset, last_epoch=1, replica_id=3, replica_directory_id=key(3).directory_id)
    assert not records_sent(tell(core, again, version=18, request_id=64))
    assert not records_sent(flush(core))

    assert commits(fetch(core, 2, 66)) == [offset + 1]
    actions = core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert records_sent(actions) == [48, 63, 64]


def test_a_fetch_under_nobodys_name_is_told_of_a_change_at_once() -> None:
    """An answer without records means to a replica that has lost its votes that the leader's end is reached."""
    core = dynamic_leader(1, 2, 3)
    offset = core.state.log.end_offset
    append_submitted(core, tell(core, remove_request(3)))

    nobody = fetch_request(epoch=1, offset=offset, last_epoch=1, replica_id=-1, max_wait_ms=0)
    assert records_sent(tell(core, nobody, version=18, request_id=60)) == [60]


def test_a_fetch_that_waited_for_a_change_of_the_voters_is_sent_to_the_snapshot_if_its_records_are_gone() -> None:
    core = dynamic_leader(1, 2, 3)
    committed = core.state.log.end_offset
    append_submitted(core, tell(core, remove_request(3)))
    behind = fetch_request(epoch=1, offset=committed - 1, last_epoch=1, replica_id=4)
    assert not records_sent(tell(core, behind, version=18, request_id=60))
    snapshot_id = OffsetAndEpoch(offset=committed, epoch=core.epoch)
    core.handle(SnapshotCreated(snapshot_id), core.state.now_ms)
    core.handle(RetentionDue(snapshot_id), core.state.now_ms)
    flush(core)
    fetch(core, 2, 61)

    actions = core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert 60 not in records_sent(actions)
    assert 60 in [action.request_id for action in actions if isinstance(action, SendResponse)]


def test_one_of_two_is_not_removed_while_the_other_lags() -> None:
    core = dynamic_leader(1, 2)
    append_one(core)
    tell(core, remove_request(1))

    actions = core.handle(TimeoutReached(), core.state.now_ms + core.state.config.request_timeout_ms)

    assert core.role is Role.LEADER
    assert answers(actions) == [ErrorCode.REQUEST_TIMED_OUT]
    assert len(core.voters) == 2


def update_request(voter_id: int, port: int, *, epoch: int, low: int = 0, high: int = 1) -> UpdateRaftVoterRequest:
    """What a voter says of itself."""
    kind = UpdateRaftVoterRequest
    return kind(
        cluster_id="cluster",
        current_leader_epoch=epoch,
        voter_id=voter_id,
        voter_directory_id=UUID(int=1_000 + voter_id),
        listeners=(kind.Listener(name=LISTENER, host="moved", port=port),),
        kraft_version_feature=kind.KRaftVersionFeature(min_supported_version=low, max_supported_version=high),
    )


def test_in_a_static_quorum_the_leader_only_remembers() -> None:
    """In memory, for the upgrade to kraft.version 1; nothing is written."""
    core = leader()
    flush(core)
    tell(core, fetch_request(epoch=1, offset=1, last_epoch=1), version=18, request_id=50)
    actions = tell(core, update_request(2, 7, epoch=1))

    assert answers(actions) == [ErrorCode.NONE]
    assert not [action for action in actions if isinstance(action, SubmitControl)]
    assert core.state.role_state.reported[2].max_kraft_version == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (update_request(2, 7, epoch=1, low=1, high=0), ErrorCode.INVALID_REQUEST),
        (update_request(2, 7, epoch=1, low=0, high=0), ErrorCode.INVALID_REQUEST),
        (update_request(2, 0, epoch=1), ErrorCode.INVALID_REQUEST),
    ],
    ids=["upside down", "too old", "no port"],
)
def test_an_impossible_update_is_refused_and_names_the_leader(
    request_: UpdateRaftVoterRequest, error: ErrorCode
) -> None:
    """The leader and its endpoint stand beside the error."""
    core = dynamic_leader()
    assert core.epoch == 1
    response = ask(core, request_)

    assert response.error_code == error
    assert (response.current_leader.leader_id, response.current_leader.port) == (1, 9001)


def test_a_leader_that_yields_finishes_a_voter_change_first() -> None:
    """The new voter is the one to yield to; its Add is answered before it leads."""
    core = dynamic_leader(yield_to=(4,), election_timeout_ms=500)
    tell(core, add_request(), request_id=60)
    append_submitted(core, reply(core, 4, supports(0, 1)))
    fetch(core, 4, 61)
    assert core.role is Role.LEADER
    fetch(core, 2, 62)
    actions = fetch(core, 3, 63)

    assert [action.response.error_code for action in actions if getattr(action, "request_id", 0) == 60] == [0]
    assert core.role is Role.RESIGNED


def test_an_addition_waits_until_the_new_voter_may_be_asked_again() -> None:
    """It has just failed: the operator is told so, and nothing is begun."""
    core = dynamic_leader()
    tell(core, add_request())
    number = outstanding_to(core, 4).correlation_id
    core.handle(RequestFailed(number, Failure.DISCONNECTED), core.state.now_ms)
    actions = tell(core, add_request(), request_id=78)

    assert answers(actions, 78) == [ErrorCode.REQUEST_TIMED_OUT]
    assert core.state.role_state.change is None  # type: ignore[union-attr]


def test_a_voter_that_answers_with_an_error_is_not_added() -> None:
    core = dynamic_leader()
    tell(core, add_request())

    assert answers(reply(core, 4, ApiVersionsResponse(error_code=35))) == [ErrorCode.REQUEST_TIMED_OUT]
    assert core.voters.ids == (1, 2, 3)


def test_a_new_voter_that_answers_ends_its_failures_in_a_row() -> None:
    """It was not reached before, and says now that it is too new: the next failure is the first one again."""
    core = dynamic_leader()
    tell(core, add_request())
    number = outstanding_to(core, 4).correlation_id
    core.handle(RequestFailed(number, Failure.DISCONNECTED), core.state.now_ms)
    core.handle(TimeoutReached(), core.state.now_ms + 500)
    tell(core, add_request(), request_id=78)
    assert core.state.connections.failures(4) == 1

    assert answers(reply(core, 4, supports(7, 8)), 78) == [ErrorCode.INVALID_REQUEST]
    assert core.state.connections.failures(4) == 0


def test_an_addition_that_was_answered_at_the_append_is_not_answered_again() -> None:
    """Its commit frees the way for the next change."""
    core = dynamic_leader()
    tell(core, add_request(ack_when_committed=False), version=1)
    append_submitted(core, reply(core, 4, supports(0, 1)))
    actions = flush(core) + fetch(core, 2, 60) + fetch(core, 4, 61)

    assert answers(actions) == []
    assert core.high_watermark == core.state.log.end_offset
    assert core.state.role_state.change is None  # type: ignore[union-attr]


def test_an_update_waits_until_the_last_one_is_committed() -> None:
    """One voter set at a time, be it only an address that changes."""
    core = dynamic_leader()
    append_submitted(core, tell(core, update_request(2, 7, epoch=core.epoch)))
    actions = tell(core, update_request(3, 8, epoch=core.epoch), request_id=78)

    assert answers(actions, 78) == [ErrorCode.REQUEST_TIMED_OUT]
    assert not [action for action in actions if isinstance(action, SubmitControl)]


def test_a_leader_that_steps_down_answers_whoever_waits_for_a_change_and_nobody_twice() -> None:
    """An addition that was answered at its append is nobody's concern any more."""
    for acknowledged in (False, True):
        core = dynamic_leader()
        tell(core, add_request(ack_when_committed=not acknowledged), version=1)
        append_submitted(core, reply(core, 4, supports(0, 1)))
        actions = tell(core, begin_request(epoch=core.epoch + 1), request_id=78)

        assert core.role is Role.FOLLOWER
        assert answers(actions) == ([] if acknowledged else [ErrorCode.NOT_LEADER_OR_FOLLOWER])


def test_no_second_change_while_the_first_is_not_committed_though_its_asker_was_told_to_try_again() -> None:
    """Two changes on the way at once could have majorities that do not meet (Ongaro, 2015)."""
    core = dynamic_leader()
    append_submitted(core, tell(core, remove_request(3)))
    flush(core)
    assert core.state.log.voters.latest_offset == core.high_watermark
    core.handle(TimeoutReached(), core.state.now_ms + 2_000)
    assert core.state.role_state.change is None  # type: ignore[union-attr]

    for number, request in enumerate((remove_request(2), add_request(), update_request(2, 7, epoch=core.epoch)), 80):
        actions = tell(core, request, request_id=number)
        assert answers(actions, number) == [ErrorCode.REQUEST_TIMED_OUT]
        assert not [action for action in actions if isinstance(action, SubmitControl)]


@pytest.mark.parametrize(
    ("host", "port", "count", "possible"),
    [("h." * 127 + "h", 65_535, 16, True), ("h." * 127 + "hh", 1, 1, False), ("", 1, 1, False), ("h", 0, 1, False),
     ("h", 65_536, 1, False), ("h", 1, 17, False), ("replica_4", 1, 1, True), ("evil.example\nforged", 1, 1, False)],
)  # fmt: skip
def test_endpoints_that_cannot_be_are_not_taken(host: str, port: int, count: int, possible: bool) -> None:
    """Each within what a name and a port can be, and not very many."""
    listener = AddRaftVoterRequest.Listener
    found = read_listeners(tuple(listener(name=f"L{number}", host=host, port=port) for number in range(count)))

    assert (found is not None) is possible


@pytest.mark.parametrize("host", ["evil.example\nforged", "", "a b", "2130706433"])
def test_a_voter_cannot_move_to_what_is_no_host(host: str) -> None:
    core = dynamic_leader()
    listener = UpdateRaftVoterRequest.Listener(name=LISTENER, host=host, port=9093)
    request = attrs.evolve(update_request(2, 7, epoch=core.epoch), listeners=(listener,))

    actions = tell(core, request)

    assert answers(actions) == [ErrorCode.INVALID_REQUEST]
    assert not [action for action in actions if isinstance(action, SubmitControl)]


def test_a_voter_without_a_disk_is_refused_and_the_id_0_is_one() -> None:
    core = dynamic_leader()
    nobody = attrs.evolve(add_request(), voter_directory_id=UUID(int=0))
    zero = attrs.evolve(add_request(), voter_id=0)

    assert answers(tell(core, nobody)) == [ErrorCode.INVALID_REQUEST]
    assert answers(tell(core, remove_request(2, directory=0), request_id=78), 78) == [ErrorCode.INVALID_REQUEST]
    assert answers(tell(core, update_request(0, 7, epoch=core.epoch), request_id=79), 79) == [ErrorCode.VOTER_NOT_FOUND]
    assert [action.destination for action in requests(tell(core, zero, request_id=80), ApiVersionsRequest)] == [0]


@pytest.mark.parametrize("version", [(0, 1), (1, 1), (1, 9)])
def test_a_voter_that_can_do_just_the_finalized_version_is_added(version: tuple[int, int]) -> None:
    core = dynamic_leader()
    tell(core, add_request())

    assert [action for action in reply(core, 4, supports(*version)) if isinstance(action, SubmitControl)]


@pytest.mark.parametrize(("caught_up_ms", "added"), [(0, True), (2_000, True), (2_001, False), (None, False)])
def test_a_voter_that_has_not_had_everything_within_the_fetch_timeout_is_not_added(
    caught_up_ms: int | None, added: bool
) -> None:
    """It counts from the append on: were it dead or far behind, it would hold up every commit."""
    core = dynamic_leader(fetch_timeout_ms=2_000)
    tell(core, add_request())
    progress = core.state.role_state.observers[key(4)]  # type: ignore[union-attr]
    progress.last_caught_up_ms = None if caught_up_ms is None else core.state.now_ms - caught_up_ms
    actions = reply(core, 4, supports(0, 1))

    assert bool([action for action in actions if isinstance(action, SubmitControl)]) is added
    assert answers(actions) == ([] if added else [ErrorCode.REQUEST_TIMED_OUT])


def test_an_observer_that_only_fetches_and_lags_is_not_added() -> None:
    core = dynamic_leader(fetch_timeout_ms=2_000)
    began_ms = core.state.now_ms
    for step in range(1, 5):
        append_one(core)
        fetch(core, 2, 200 + step)
        tell(core, fetch_request(epoch=core.epoch, offset=1, last_epoch=1, replica_id=4,
                                 replica_directory_id=UUID(int=1_004)),
             version=18, request_id=300 + step, now_ms=began_ms + 600 * step)  # fmt: skip
    tell(core, add_request())

    assert answers(reply(core, 4, supports(0, 1))) == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("of_observer", [True, False])
def test_a_fetch_that_anybody_may_send_makes_no_replica_caught_up(of_observer: bool) -> None:
    """An observer may give any id that is no voter's, also that of the replica that is to be added."""
    core = dynamic_leader()
    core.state.role_state.observers.clear()  # type: ignore[union-attr]
    at = core.state.log.end_offset
    request = fetch_request(epoch=core.epoch, offset=at, last_epoch=core.epoch, replica_id=4,
                            replica_directory_id=UUID(int=1_004))  # fmt: skip
    core.handle(RequestReceived(300, request, 18, of_observer), core.state.now_ms)
    tell(core, add_request())

    assert answers(reply(core, 4, supports(0, 1))) == ([ErrorCode.REQUEST_TIMED_OUT] if of_observer else [])


def test_a_voter_that_is_removed_before_it_was_heard_of_is_an_observer_like_any() -> None:
    """A Fetch that does not prove whose it is shows it, since the replica itself was not here."""
    core = dynamic_leader()
    append_submitted(core, tell(core, remove_request(3)))
    assert [row.key.id for row in core.status().observer_progress] == [4]
    request = fetch_request(epoch=core.epoch, offset=1, last_epoch=core.epoch, replica_id=3,
                            replica_directory_id=UUID(int=1_003))  # fmt: skip
    core.handle(RequestReceived(300, request, 18, True), core.state.now_ms)

    rows = {row.key.id: row for row in core.status().observer_progress}
    assert (rows[3].end_offset, rows[3].last_fetch_ms) == (1, core.state.now_ms)


@pytest.mark.parametrize(
    ("silent", "removed", "refused"), [(3, 2, True), (3, 3, False), (3, 1, True), (None, 2, False), (2, 3, True)]
)
def test_a_removal_that_leaves_no_live_majority_is_refused_and_names_those_that_live(
    silent: int | None, removed: int, refused: bool
) -> None:
    """It counts from the append on, so that nothing would be committed any more, and nobody could take it back."""
    core = dynamic_leader()
    for number in (2, 3):
        fetch(core, number, 100 + number)
    core.state.now_ms += 3_001
    for number in {2, 3} - {silent}:
        fetch(core, number, 200 + number)
    actions = tell(core, remove_request(removed))

    assert (answers(actions) == [ErrorCode.BROKER_NOT_AVAILABLE]) is refused
    assert bool([action for action in actions if isinstance(action, SubmitControl)]) is not refused
    if refused:
        (message,) = [action.response.error_message for action in actions if isinstance(action, SendResponse)]
        assert "have fetched within the last 3000 ms" in message
        assert core.voters.ids == (1, 2, 3)


# --- what waits to be appended ---------------------------------------------------------------------------------------


def refused(core: Replica, request: Any, number: int) -> bool:
    """Whether a change is to be tried again, and nothing of it is on its way."""
    actions = tell(core, request, request_id=number)
    waits = any(isinstance(action, SubmitControl) for action in actions)
    return answers(actions, number) == [ErrorCode.REQUEST_TIMED_OUT] and not waits


def test_no_change_while_another_waits_to_be_appended_though_its_asker_was_told_to_try_again() -> None:
    """The accumulator may have it for long, behind a transfer; the log, which knows nothing of it, is no witness."""
    core = dynamic_leader()
    submitted = tell(core, remove_request(3))
    core.handle(TimeoutReached(), core.state.now_ms + 2_000)
    assert core.state.role_state.change is None  # type: ignore[union-attr]
    assert core.status().voter_change_pending

    changes = (remove_request(2), add_request(), update_request(2, 7, epoch=core.epoch))
    assert all(refused(core, request, number) for number, request in enumerate(changes, 80))
    append_submitted(core, submitted)
    assert core.voters.ids == (1, 2)
    assert all(refused(core, request, number) for number, request in enumerate(changes, 90)), "it is not committed yet"
    flush(core)
    fetch(core, 2, 60)
    assert answers(tell(core, update_request(2, 7, epoch=core.epoch), request_id=99), 99) == [ErrorCode.NONE]


def test_an_update_does_not_overtake_another_that_waits_to_be_appended() -> None:
    """The second one would be made of voters that know nothing of the first, and take it back."""
    core = dynamic_leader()
    first = tell(core, update_request(2, 7, epoch=core.epoch))
    assert refused(core, update_request(3, 8, epoch=core.epoch), 78)

    append_submitted(core, first)
    flush(core)
    fetch(core, 2, 60)
    append_submitted(core, tell(core, update_request(3, 8, epoch=core.epoch), request_id=79))
    assert [str(core.voters.get(number).endpoints[LISTENER]) for number in (2, 3)] == [  # type: ignore[union-attr]
        "moved:7",
        "moved:8",
    ]


def test_a_leader_stops_before_it_writes_voters_of_whom_two_have_changed() -> None:
    """No follower would take them, and what is behind them would never be committed."""
    core = dynamic_leader()
    with pytest.raises(InvariantError, match="more than one voter would change at once"):
        submit_controls(core, voter_set(key(1), key(4), key(5)).to_record())
