"""Fetch at the leader: what it answers, how far the others are, what is committed."""

from __future__ import annotations

from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import AdvanceHighWatermark, AppendToLog, FlushLog, SendRecords, SendResponse
from kraftlib.consensus.events import RecordsSubmitted, RequestReceived, TimeoutReached
from kraftlib.consensus.fetch_leader import (
    HIGH_WATERMARK_NEWS_DELAY_MS,
    OBSERVERS_MAX,
    WENT_BACK,
    advance_high_watermark,
    follow_voters,
    record_progress,
)
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.voter_changes import is_caught_up
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import InvariantError
from kraftlib.types import ElectionState, OffsetAndEpoch, ReplicaKey
from kraftlib.wire import frames
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from tests.consensus.build import (
    as_leader,
    ask,
    batch,
    begin_request,
    commits,
    fetch_request,
    flush,
    follower,
    kinds,
    leader,
    log_view,
    outstanding_to,
    park,
    partition_of,
    pending_requests,
    replica,
    submit,
    tell,
    vote_request,
    voter_set,
)

TOPIC = fetch_request(epoch=1, offset=0, last_epoch=0).topics[0]


def test_a_majority_commits_and_our_own_copy_counts_when_flushed() -> None:
    """Two of three: one Fetch and our flush, in either order (scenario L9)."""
    first, second = leader(), leader()

    assert commits(park(first)) == []
    assert commits(flush(first)) == [1]
    assert commits(flush(second)) == []
    assert commits(park(second)) == [1]


def test_two_followers_commit_what_we_have_not_flushed_yet() -> None:
    """Our disk may be the slow one."""
    core = leader()
    park(core, 2, 77)

    assert commits(park(core, 3, 78)) == [1]


def test_records_of_older_epochs_are_committed_by_the_first_of_ours_only() -> None:
    """Raft, figure 8 (scenario L4): a majority at the epoch's start has not committed anything of it."""
    core = leader(1, 1, 2)
    start = core.state.role_state.epoch_start_offset  # type: ignore[union-attr]
    flush(core)
    actions = tell(core, fetch_request(epoch=core.epoch, offset=start, last_epoch=2), version=18)
    assert commits(actions) == []

    assert commits(park(core, 2, 78)) == [start + 1]


def test_an_observer_commits_nothing() -> None:
    """It counts for no majority, however far it is."""
    core = leader()
    flush(core)

    assert commits(park(core, replica_id=9)) == []


def test_so_many_observers_are_remembered_and_no_more() -> None:
    """Whoever calls itself otherwise in each Fetch makes the leader forget who has not asked for longest."""
    core = leader()
    role = as_leader(core)
    for number in range(OBSERVERS_MAX + 5):
        core.state.now_ms += 1
        record_progress(core.state, role, ReplicaKey(10 + number), 0)
        record_progress(core.state, role, ReplicaKey(9), 0)

    assert len(role.observers) == OBSERVERS_MAX
    assert ReplicaKey(9) in role.observers, "it asks all the time"
    assert [ReplicaKey(10 + number) in role.observers for number in (0, 5, 6, OBSERVERS_MAX + 4)] == [
        False,
        False,
        True,
        True,
    ]


def test_a_voter_that_forgets_what_it_has_acknowledged_is_noticed_and_counts_for_what_it_has() -> None:
    """An old backup in the place of its disk, or two of one identity (scenario M13, S14)."""
    core = leader(1, 1, election=ElectionState(epoch=1))
    for offset, complaints in ((0, 0), (2, 0), (2, 0), (1, 1), (2, 1), (1, 2)):
        tell(core, fetch_request(epoch=2, offset=offset, last_epoch=1 if offset else 0, max_wait_ms=0), version=18)
        role = as_leader(core)

        assert role.progress[2].end_offset == offset
        assert core.state.refused.get(WENT_BACK, 0) == complaints


def new_voters(core: Replica, voters: VoterSet) -> None:
    """Let a voter set stand in the log of a leader, as if it had just been appended."""
    known = core.state.log.voters
    known.add(max(core.state.log.end_offset, known.latest_offset or 0) + 1, voters)
    follow_voters(core.state, as_leader(core))


def longer(count: int = 2) -> Replica:
    """A leader of epoch 1 with a few records behind the first of its epoch, all of it flushed."""
    core = leader()
    submit(core, count)
    flush(core)
    return core


def test_how_far_a_replica_is_and_when_it_asked_is_kept_for_voters_and_observers_alike() -> None:
    """Caught up is who has all of our log, be it flushed here or not."""
    for replica_id in (2, 9):
        core = longer()
        state, role = core.state, as_leader(core)
        submit(core, 1)
        assert state.log.flushed_offset < state.log.end_offset
        state.now_ms += 5
        record_progress(state, role, ReplicaKey(replica_id), state.log.flushed_offset)
        progress = role.progress[2] if replica_id == 2 else role.observers[ReplicaKey(9)]
        assert (progress.end_offset, progress.last_fetch_ms) == (state.log.flushed_offset, state.now_ms)
        assert progress.last_caught_up_ms is None
        record_progress(state, role, ReplicaKey(replica_id), state.log.end_offset)
        assert progress.last_caught_up_ms == state.now_ms


def test_a_voters_fetch_is_a_sign_of_life_and_an_observers_is_none() -> None:
    core = leader()
    role, deadline_ms = as_leader(core), as_leader(core).check_quorum_deadline_ms
    core.state.now_ms += 100
    record_progress(core.state, role, ReplicaKey(9), 0)
    assert role.check_quorum_deadline_ms == deadline_ms
    record_progress(core.state, role, ReplicaKey(2), 0)
    assert role.check_quorum_deadline_ms == deadline_ms + 100


def test_a_voter_of_whom_nothing_is_known_is_a_bug() -> None:
    core = leader()
    as_leader(core).progress.pop(2)
    with pytest.raises(InvariantError, match="no progress"):
        record_progress(core.state, as_leader(core), ReplicaKey(2), 0)


def test_the_high_watermark_neither_falls_nor_is_told_twice() -> None:
    """A voter goes back, to beyond the start of the epoch; another one comes to where a majority is already."""
    core = longer()
    state, role = core.state, as_leader(core)
    end_offset = state.log.end_offset
    assert commits(record_progress(state, role, ReplicaKey(2), end_offset)) == [end_offset]
    assert record_progress(state, role, ReplicaKey(3), end_offset) == []
    assert record_progress(state, role, ReplicaKey(3), end_offset - 1) == []
    assert record_progress(state, role, ReplicaKey(2), end_offset - 1) == []
    assert (state.high_watermark, state.committed_offset) == (end_offset, end_offset)
    submit(core, 1)
    flush(core)
    assert commits(record_progress(state, role, ReplicaKey(3), end_offset + 1)) == [end_offset + 1]


def test_a_commit_ends_the_patience_with_what_waits() -> None:
    core = longer()
    state, role = core.state, as_leader(core)
    role.stalled_since_ms, state.stalls = 3, 4
    record_progress(state, role, ReplicaKey(2), state.log.end_offset)

    assert (role.stalled_since_ms, state.stalls) == (None, 0)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("wait_ms", "expected_ms"), [(500, HIGH_WATERMARK_NEWS_DELAY_MS), (1, 1)])
def test_who_waits_hears_of_a_commit_soon_and_never_later_than_he_wanted(
    wait_ms: int, expected_ms: int, first: bool
) -> None:
    """KIP-1166: two Fetches wait, the one with more patience than the other."""
    core = leader()
    if not first:
        park(core, 9, 78, max_wait_ms=400)
    park(core, 2, 77, max_wait_ms=wait_ms)
    if first:
        park(core, 9, 78, max_wait_ms=400)
    now_ms = core.state.now_ms
    flush(core)

    assert core.high_watermark == 1
    assert as_leader(core).parked[77].deadline_ms == now_ms + expected_ms
    assert as_leader(core).parked[78].deadline_ms == now_ms + HIGH_WATERMARK_NEWS_DELAY_MS
    assert as_leader(core).parked_deadline_ms == now_ms + expected_ms
    assert core.deadline_ms() == now_ms + expected_ms


def test_what_is_not_in_the_log_cannot_be_committed_and_what_is_not_flushed_can() -> None:
    core = leader()
    state = core.state
    assert state.log.flushed_offset < state.log.end_offset
    with pytest.raises(InvariantError, match="beyond the log end"):
        advance_high_watermark(state, state.log.end_offset + 1)
    assert state.high_watermark is None
    assert commits(advance_high_watermark(state, state.log.end_offset)) == [state.log.end_offset]
    assert state.committed_offset == state.log.end_offset


def test_what_is_known_of_a_replica_goes_with_it_when_it_becomes_a_voter_or_ceases_to_be_one() -> None:
    core = longer()
    state, role = core.state, as_leader(core)
    record_progress(state, role, ReplicaKey(9), 2)
    record_progress(state, role, ReplicaKey(3), 1)
    voter, observer = role.progress[3], role.observers[ReplicaKey(9)]
    role.fetched_voters = {2, 3}
    new_voters(core, voter_set(1, 2, 9))

    assert set(role.progress) == {2, 9}
    assert role.progress[9] is observer
    assert role.observers == {ReplicaKey(3): voter}
    assert role.fetched_voters == {2}
    new_voters(core, voter_set(1, 2, 9, 7))
    assert role.progress[7].end_offset == -1
    assert role.progress[9] is observer


def test_what_an_observer_says_of_a_replica_that_is_to_join_counts_for_nothing() -> None:
    """It knows the disk of replica 9 from DescribeQuorum: that one would be taken for caught up, and acknowledge."""
    core, key = longer(), ReplicaKey(9)
    state, role = core.state, as_leader(core)
    end_offset = state.log.end_offset
    record_progress(state, role, key, end_offset, is_proven=False)
    assert not is_caught_up(state, role.observers[key])
    new_voters(core, voter_set(1, 2, 3, 9))
    assert (role.progress[9].end_offset, role.observers) == (-1, {})

    new_voters(core, voter_set(1, 2, 3))
    record_progress(state, role, key, end_offset, is_proven=False)
    record_progress(state, role, key, 1)
    assert role.observers[key].end_offset == 1, "now the replica itself was here"
    record_progress(state, role, key, end_offset, is_proven=False)
    assert role.observers[key].end_offset == 1
    record_progress(state, role, key, end_offset)
    assert is_caught_up(state, role.observers[key])


def test_a_voter_that_the_log_names_with_its_disk_is_who_it_was_without() -> None:
    """And the other way round; another disk is somebody else."""
    core = leader()
    state, role = core.state, as_leader(core)
    record_progress(state, role, ReplicaKey(2), 1)
    known, named = role.progress[2], ReplicaKey(2, UUID(int=1_002))
    new_voters(core, voter_set(1, named, 3))
    assert role.progress[2] is known
    assert known.key == named

    new_voters(core, voter_set(1, ReplicaKey(2, UUID(int=5)), 3))
    assert role.progress[2] is not known
    assert role.observers == {named: known}
    other = role.progress[2]
    new_voters(core, voter_set(1, ReplicaKey(2), 3))
    assert role.progress[2] in (known, other)
    assert role.progress[2].key == ReplicaKey(2)


def test_the_first_other_voter_has_its_time_and_a_later_one_takes_none_from_the_others() -> None:
    """While nobody else was needed, nobody was missed."""
    core = leader(voters=voter_set(1, 2))
    state, role = core.state, as_leader(core)
    before_ms = role.check_quorum_deadline_ms
    state.now_ms += 50
    new_voters(core, voter_set(1, 2, 3))
    assert role.check_quorum_deadline_ms == before_ms
    new_voters(core, voter_set(1))
    assert role.check_quorum_deadline_ms == before_ms
    new_voters(core, voter_set(1, 2, 3, 4))
    assert role.check_quorum_deadline_ms == before_ms + 50


def of_topics(*topics: FetchRequest.FetchTopic) -> FetchRequest:
    """A Fetch of these topics."""
    return attrs.evolve(fetch_request(epoch=1, offset=0, last_epoch=0), topics=topics)


# --- the leader's side -----------------------------------------------------------------------------------------------


OURS = {"epoch": 1, "offset": 0, "last_epoch": 0}

OF_SOMETHING_ELSE = {
    "other cluster": fetch_request(**OURS, cluster_id="other"),
    "other topic": fetch_request(**OURS, topic_id=UUID(int=2)),
    "topic by name": fetch_request(**OURS),
    "no topic": of_topics(),
    "two topics": of_topics(TOPIC, TOPIC),
    "no partition": of_topics(attrs.evolve(TOPIC, partitions=())),
    "two partitions": of_topics(attrs.evolve(TOPIC, partitions=TOPIC.partitions * 2)),
    "other partition": of_topics(attrs.evolve(TOPIC, partitions=(attrs.evolve(TOPIC.partitions[0], partition=1),))),
}


@pytest.mark.parametrize("what", OF_SOMETHING_ELSE)
def test_a_fetch_of_something_else_is_refused_at_top_level(what: str) -> None:
    """No topics, no state (KIP-595, Fetch)."""
    response = ask(leader(), OF_SOMETHING_ELSE[what], version=12 if what == "topic by name" else 18)
    error = ErrorCode.INCONSISTENT_CLUSTER_ID if what == "other cluster" else ErrorCode.INVALID_REQUEST

    assert (response.error_code, response.responses) == (error, ())


@pytest.mark.parametrize(("version", "count"), [(16, 0), (17, 1), (18, 1)])
def test_endpoints_are_named_from_version_17_on(version: int, count: int) -> None:
    """The schema has them from 16 on; Kafka's raft leader does not fill them there (probed)."""
    core = follower(1, epoch=5, leader_id=3)

    assert len(ask(core, fetch_request(epoch=5, offset=0, last_epoch=0), version=version).node_endpoints) == count


def test_our_own_id_cannot_fetch_from_us() -> None:
    """Somebody runs with our id."""
    request = fetch_request(epoch=1, offset=0, last_epoch=0, replica_id=1)

    assert partition_of(ask(leader(), request, version=18)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_records_are_answered_at_once_uncommitted_ones_included() -> None:
    """Followers may have them before our own flush (Raft thesis, 10.2.1)."""
    core = leader()
    actions = tell(core, fetch_request(epoch=1, offset=0, last_epoch=0), version=18)
    sent = [action for action in actions if isinstance(action, SendRecords)]

    assert [(action.request_id, action.start_offset) for action in sent] == [(77, 0)]
    assert partition_of(sent[0].response).high_watermark == -1


def test_a_fetch_at_the_end_is_held_and_answered_by_the_next_append() -> None:
    """Long polling; the answer leaves before the flush of the same list begins."""
    core = leader()
    assert not [action for action in park(core) if isinstance(action, SendResponse | SendRecords)]
    kinds = [type(action) for action in submit(core)]

    assert kinds.index(AppendToLog) < kinds.index(SendRecords) < kinds.index(FlushLog)


def test_a_fetch_waits_no_longer_than_it_wants_for_records_to_go_with_the_news() -> None:
    core = leader()
    flush(core)
    park(core)
    request = fetch_request(epoch=1, offset=1, last_epoch=1, replica_id=3, max_wait_ms=1, high_watermark=0)
    tell(core, request, version=18, request_id=90)
    began = core.state.now_ms

    assert core.deadline_ms() == began + 1
    assert [a.request_id for a in core.handle(TimeoutReached(), began + 1) if isinstance(a, SendResponse)] == [90]


def test_a_fetch_is_not_held_for_days_because_it_wants_to() -> None:
    """Its connection may be gone by then. Without an end, a leader that nobody writes to would remember ever more."""
    core = replica(voters=voter_set(1))
    core.handle(TimeoutReached(), 3_000)
    flush(core)
    park(core, 9, max_wait_ms=2**31 - 1)
    now_ms = core.state.now_ms

    assert kinds(core.handle(TimeoutReached(), now_ms + 59_999)) == []
    assert core.deadline_ms() == now_ms + 60_000
    assert kinds(core.handle(TimeoutReached(), now_ms + 60_000)) == [SendResponse]


def test_a_fetch_that_does_not_want_to_wait_does_not() -> None:
    """MaxWaitMs 0."""
    core = leader()
    log = core.state.log
    request = fetch_request(epoch=1, offset=log.end_offset, last_epoch=1, max_wait_ms=0)

    assert partition_of(ask(core, request, version=18)).records == b""


def test_a_new_high_watermark_is_told_soon_but_not_alone_if_records_come() -> None:
    """KIP-1166, and why the news waits two milliseconds: the next append goes with it."""
    core = leader()
    flush(core)
    park(core, 2, 77, high_watermark=-1)
    start = core.state.now_ms
    assert core.high_watermark == 1
    actions = submit(core)
    assert [action.request_id for action in actions if isinstance(action, SendRecords)] == [77]
    park(core, 3, 78, high_watermark=0)
    actions = core.handle(TimeoutReached(), start + 2)

    assert [action.request_id for action in actions if isinstance(action, SendResponse)] == [78]


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [(4, 2, (2, 2)), (9, 3, (5, 3)), (2, 1, None), (5, 3, None)],
    ids=["longer in an older epoch", "beyond the end", "valid inside", "valid at the end"],
)
def test_a_log_that_leaves_ours_is_told_where(offset: int, epoch: int, diverging: tuple[int, int] | None) -> None:
    """Diverging names the end of the largest common epoch (log_view)."""
    core = leader(1, 1, 2, 3, 3)
    partition = partition_of(ask(core, fetch_request(epoch=core.epoch, offset=offset, last_epoch=epoch), version=18))
    named = partition.diverging_epoch

    if diverging is None:
        assert named.epoch == -1
    else:
        end = core.state.log.end_for(epoch)
        assert (named.end_offset, named.epoch) == (end.offset, end.epoch)


def test_an_empty_follower_gets_the_snapshot_even_where_the_log_reaches_back() -> None:
    """KAFKA-15078."""
    log = log_view(1, 1, 1, snapshots=(OffsetAndEpoch(offset=2, epoch=1),), voters=voter_set(1, 2, 3))
    core = leader(log=log)
    partition = partition_of(ask(core, fetch_request(epoch=core.epoch, offset=0, last_epoch=0), version=18))

    assert (partition.snapshot_id.end_offset, partition.snapshot_id.epoch) == (2, 1)


def test_records_for_an_epoch_that_is_over_are_a_bug() -> None:
    """The executor drains the accumulator only for the leadership that it was opened for."""
    core = leader()
    with pytest.raises(InvariantError, match="cannot append in epoch 0"):
        core.handle(RecordsSubmitted((batch(1, 0),), 0), core.state.now_ms)


def test_draining_makes_sense_when_a_voter_waits_or_nothing_is_being_flushed() -> None:
    """Otherwise what arrives is better left to form the next batch; an observer's Fetch changes nothing."""
    core = leader()
    assert not core.wants_records
    park(core, replica_id=9, request_id=76)
    assert not core.wants_records
    park(core)
    assert core.wants_records
    submit(core)
    assert not core.wants_records
    flush(core)
    assert core.wants_records


def test_a_follower_that_asks_for_one_byte_as_configured_is_not_taken_for_a_full_disk() -> None:
    """Else no voter of such a quorum would be handed the leadership, however much it is wanted."""
    core = follower(fetch_max_bytes=1)
    asked = outstanding_to(core, 2).request

    leading = leader()
    tell(
        leading,
        attrs.evolve(
            asked,
            topics=fetch_request(epoch=leading.epoch, offset=0, last_epoch=0).topics,
            replica_state=FetchRequest.ReplicaState(replica_id=2),
        ),
        version=18,
    )
    assert as_leader(leading).progress[2].has_space


def test_a_fetch_of_the_first_version_that_names_topics_by_id_is_served() -> None:
    request = fetch_request(epoch=1, offset=0, last_epoch=0)

    assert ask(leader(), request, version=13).error_code == ErrorCode.NONE
    assert ask(leader(), request, version=12).error_code == ErrorCode.INVALID_REQUEST


def test_a_fetch_that_commits_and_does_not_wait_commits_first() -> None:
    core = leader()
    flush(core)
    actions = tell(core, fetch_request(epoch=1, offset=1, last_epoch=1, max_wait_ms=0), version=18)

    assert [type(action) for action in actions[:2]] == [AdvanceHighWatermark, SendResponse]


def test_another_disk_of_a_voters_id_is_an_observer() -> None:
    keys = [ReplicaKey(number, UUID(int=number)) for number in (1, 2, 3)]
    core = leader(voters=voter_set(*keys), directory_id=keys[0].directory_id)
    flush(core)
    request = fetch_request(epoch=1, offset=1, last_epoch=1, replica_directory_id=UUID(int=99))
    assert commits(tell(core, request, version=18)) == []
    role = as_leader(core)
    first = role.observers[ReplicaKey(2, UUID(int=99))]
    tell(core, request, version=18, request_id=78)
    assert role.observers[ReplicaKey(2, UUID(int=99))] is first
    assert role.progress[2].end_offset == -1

    request = fetch_request(epoch=1, offset=1, last_epoch=1, replica_directory_id=UUID(int=2))
    assert commits(tell(core, request, version=18, request_id=79)) == [1]


@pytest.mark.parametrize(("wanted", "given"), [(-5, 1), (0, 1), (100, 100), (1 << 40, 8 << 20)])
def test_no_more_bytes_are_sent_than_fit_and_never_none(wanted: int, given: int) -> None:
    request = attrs.evolve(fetch_request(epoch=1, offset=0, last_epoch=0), max_bytes=wanted)
    (sent,) = [action for action in tell(leader(), request, version=18) if isinstance(action, SendRecords)]

    assert sent.max_bytes == given


def test_a_follower_that_has_records_gets_records_and_no_snapshot() -> None:
    snapshot = OffsetAndEpoch(offset=2, epoch=1)
    core = leader(log=log_view(1, 1, 1, snapshots=(snapshot,), voters=voter_set(1, 2, 3)))
    epoch = core.epoch
    for offset, is_empty in ((0, True), (2, False), (3, False)):
        request = fetch_request(epoch=epoch, offset=offset, last_epoch=1 if offset else 0)
        partition = partition_of(ask(core, request, version=18, request_id=offset))
        assert (partition.snapshot_id.epoch >= 0) is is_empty


def test_a_search_for_the_leader_that_the_fetch_to_it_has_overtaken_is_no_alarm() -> None:
    """It says what its sender had when it did not know the leader yet: as nobody, so that no voter seems to go back."""
    core = follower(1, epoch=5, leader_id=2)
    tell(core, vote_request(epoch=6, replica_id=3))
    (search,) = [one for one in pending_requests(core) if isinstance(one.request, FetchRequest)]
    elected = leader(1)
    flush(elected)
    tell(elected, fetch_request(epoch=elected.epoch, offset=2, last_epoch=elected.epoch, replica_id=2), version=18)
    (topic,) = search.request.topics
    partition = attrs.evolve(topic.partitions[0], current_leader_epoch=elected.epoch)
    late = attrs.evolve(search.request, topics=(attrs.evolve(topic, partitions=(partition,)),))
    tell(elected, late, version=18, request_id=78)

    assert elected.state.refused == {}
    assert as_leader(elected).progress[2].end_offset == 2


@pytest.mark.parametrize("version", [13, 14, 15, 16, 17, 18])
def test_who_fetches_is_known_in_every_version_and_counts(version: int) -> None:
    """`ReplicaId` below 15, `ReplicaState` from there on."""
    core = leader()
    flush(core)
    request = fetch_request(epoch=1, offset=1, last_epoch=1, replica_id=2)
    if version < 15:
        request = attrs.evolve(request, replica_id=2, replica_state=type(request.replica_state)())
    head = frames.decode_request(
        frames.encode_request(request, version=version, correlation_id=1, client_id="raft-client-2")
    )
    core.handle(RequestReceived(77, head.message, head.api_version), core.state.now_ms)

    assert core.high_watermark == 1


def test_a_leader_that_follows_another_answers_held_fetches_with_the_new_epoch_and_leader() -> None:
    core = leader(1)
    park(core)
    actions = tell(core, begin_request(epoch=5, leader_id=3), request_id=78)
    (answer,) = [action for action in actions if isinstance(action, SendResponse) and action.request_id == 77]
    partition = partition_of(answer.response)

    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (3, 5)
    assert [place.node_id for place in answer.response.node_endpoints] == [3]
