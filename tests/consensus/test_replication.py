"""Fetch, both sides (KIP-595, Fetch)."""

from __future__ import annotations

from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import (
    AppendToLog,
    FlushLog,
    SendRecords,
    SendRequest,
    SendResponse,
    TruncateLog,
)
from kraftlib.consensus.events import (
    ConnectionLost,
    DiskSpaceChanged,
    Flushed,
    LogTruncated,
    RecordsSubmitted,
    TimeoutReached,
)
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.errors import InvariantError
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.checksum import crc32c
from kraftlib.types import METADATA_TOPIC_ID, ZERO_UUID, LeaderAndEpoch, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from tests.consensus.build import (
    answer_vote,
    as_leader,
    ask,
    commits,
    fetch_request,
    fetch_response,
    flush,
    follower,
    leader,
    log_view,
    outstanding_to,
    park,
    partition_of,
    reply,
    requests,
    tell,
    vote_request,
    voter_set,
)

TOPIC = fetch_request(epoch=1, offset=0, last_epoch=0).topics[0]


def of_topics(*topics: FetchRequest.FetchTopic) -> FetchRequest:
    """A Fetch of these topics."""
    return attrs.evolve(fetch_request(epoch=1, offset=0, last_epoch=0), topics=topics)


def batch(offset: int, epoch: int, count: int = 1) -> Batch:
    """A stamped batch."""
    return encode_batch([b"x"] * count, timestamp_ms=0, base_offset=offset, epoch=epoch)


def data(*batches: Batch) -> bytes:
    """Their bytes, back to back."""
    return b"".join(bytes(one.data) for one in batches)


def transactional(one: Batch) -> bytes:
    """The batch with an attribute that KRaft never sets, and a checksum that fits."""
    changed = bytearray(one.data)
    changed[22] |= 0x10
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def submit(core: Replica, count: int = 1) -> list[object]:
    """Hand records to a leader."""
    records = batch(core.state.log.end_offset, core.epoch, count)
    return core.handle(RecordsSubmitted((records,), core.epoch), core.state.now_ms)


# --- the leader's side -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "version", "error"),
    [
        (fetch_request(epoch=1, offset=0, last_epoch=0, cluster_id="other"), 18, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (
            fetch_request(epoch=1, offset=0, last_epoch=0, topic_id=METADATA_TOPIC_ID.__class__(int=2)),
            18,
            ErrorCode.INVALID_REQUEST,
        ),
        (fetch_request(epoch=1, offset=0, last_epoch=0), 12, ErrorCode.INVALID_REQUEST),
        (of_topics(), 18, ErrorCode.INVALID_REQUEST),
        (of_topics(TOPIC, TOPIC), 18, ErrorCode.INVALID_REQUEST),
        (of_topics(attrs.evolve(TOPIC, partitions=())), 18, ErrorCode.INVALID_REQUEST),
        (of_topics(attrs.evolve(TOPIC, partitions=TOPIC.partitions * 2)), 18, ErrorCode.INVALID_REQUEST),
        (
            of_topics(attrs.evolve(TOPIC, partitions=(attrs.evolve(TOPIC.partitions[0], partition=1),))),
            18,
            ErrorCode.INVALID_REQUEST,
        ),
    ],
    ids=[
        "other cluster",
        "other topic",
        "topic by name",
        "no topic",
        "two topics",
        "no partition",
        "two partitions",
        "other partition",
    ],
)
def test_a_fetch_of_something_else_is_refused_at_top_level(
    request_: FetchRequest, version: int, error: ErrorCode
) -> None:
    """No topics, no state (KIP-595, Fetch)."""
    response = ask(leader(), request_, version=version)

    assert (response.error_code, response.responses) == (error, ())


@pytest.mark.parametrize(
    ("epoch", "offset", "last_epoch", "max_wait_ms", "error"),
    [
        (1, -1, 0, 500, ErrorCode.INVALID_REQUEST),
        (1, 0, -1, 500, ErrorCode.INVALID_REQUEST),
        (1, 0, 2, 500, ErrorCode.INVALID_REQUEST),
        (1, 0, 0, -1, ErrorCode.INVALID_REQUEST),
        (0, 0, 0, 500, ErrorCode.FENCED_LEADER_EPOCH),
        (2, 0, 0, 500, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_fetch_that_does_not_fit_is_told_why(
    epoch: int, offset: int, last_epoch: int, max_wait_ms: int, error: ErrorCode
) -> None:
    """With our epoch and leader, and without a high watermark; a newer epoch is not adopted."""
    core = leader()
    request = fetch_request(epoch=epoch, offset=offset, last_epoch=last_epoch, max_wait_ms=max_wait_ms)
    partition = partition_of(ask(core, request, version=18))

    assert (partition.error_code, partition.high_watermark, partition.records) == (error, -1, b"")
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
    assert core.epoch == 1


def test_a_follower_answers_with_its_leader() -> None:
    """Whoever is asked names whom to ask."""
    core = follower(1, epoch=5, leader_id=3)
    response = ask(core, fetch_request(epoch=5, offset=0, last_epoch=0), version=18)

    assert partition_of(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [(place.node_id, place.port) for place in response.node_endpoints] == [(3, 9003)]


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


def test_a_held_fetch_is_answered_empty_when_its_time_is_up() -> None:
    """And not before."""
    core = leader()
    start = core.state.now_ms
    park(core, max_wait_ms=300)
    assert core.handle(TimeoutReached(), start + 299) == []
    actions = core.handle(TimeoutReached(), start + 300)

    assert [action.request_id for action in actions if isinstance(action, SendResponse)] == [77]


def test_a_fetch_waits_no_longer_than_it_wants_for_records_to_go_with_the_news() -> None:
    core = leader()
    flush(core)
    park(core)
    request = fetch_request(epoch=1, offset=1, last_epoch=1, replica_id=3, max_wait_ms=1, high_watermark=0)
    tell(core, request, version=18, request_id=90)
    began = core.state.now_ms

    assert core.deadline_ms() == began + 1
    assert [a.request_id for a in core.handle(TimeoutReached(), began + 1) if isinstance(a, SendResponse)] == [90]


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


def test_a_leader_that_steps_down_answers_the_held_fetches() -> None:
    """With the new epoch, at once (scenario L14)."""
    core = leader()
    park(core)
    from tests.consensus.build import begin_request

    actions = tell(core, begin_request(epoch=9, leader_id=3), request_id=90)
    answered = {action.request_id: action.response for action in actions if isinstance(action, SendResponse)}

    assert partition_of(answered[77]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition_of(answered[77]).current_leader.leader_epoch == 9


# --- the follower's side ---------------------------------------------------------------------------------------------


def test_the_next_fetch_waits_for_the_flush() -> None:
    """It is the acknowledgement: its offset is never ahead of our disk (scenario L8)."""
    core = follower(1, epoch=1, leader_id=2)
    actions = reply(core, 2, fetch_response(epoch=1, leader_id=2, records=data(batch(1, 1), batch(2, 1))))
    assert [type(action) for action in actions] == [AppendToLog, FlushLog]
    actions = flush(core)
    asked = [action.request for action in actions if isinstance(action, SendRequest)]

    assert [partition_of(request).fetch_offset for request in asked] == [3]


def test_a_flush_of_part_of_the_log_is_not_enough() -> None:
    """Everything below the fetch offset must be on disk."""
    core = follower(1, epoch=1, leader_id=2)
    reply(core, 2, fetch_response(epoch=1, leader_id=2, records=data(batch(1, 1), batch(2, 1))))

    assert core.handle(Flushed(2, core.state.log.log_version), core.state.now_ms) == []


def test_looking_for_a_leader_waits_for_the_flush_too_and_vouches_for_nothing() -> None:
    """The replica that is asked may be the leader, and would count what we name (KAFKA-17332)."""
    core = follower(1, epoch=1, leader_id=2, directory_id=UUID(int=7))
    reply(core, 2, fetch_response(epoch=1, leader_id=2, records=data(batch(1, 1), batch(2, 1))))
    actions = tell(core, vote_request(epoch=7, replica_id=3))
    assert core.role is Role.UNATTACHED
    assert requests(actions, FetchRequest) == []
    (asked,) = requests(flush(core), FetchRequest)

    assert partition_of(asked.request).fetch_offset == 3
    assert (asked.request.replica_state.replica_id, asked.request.max_wait_ms) == (-1, 0)
    assert partition_of(asked.request).replica_directory_id == ZERO_UUID


@pytest.mark.parametrize(
    ("records", "taken"),
    [
        (data(batch(1, 1), batch(3, 1)), 1),
        (data(batch(0, 1)), 0),
        (data(batch(1, 0)), 0),
        (data(batch(1, 1), batch(2, 2)), 1),
        (data(batch(1, 1), batch(2, 1))[:-1], 1),
        (data(batch(1, 1))[:-1] + b"?", 0),
        (b"GET / HTTP/1.1\r\n\r\n" * 8, 0),
        (data(batch(1, 1)) + b"\0" * 12, 1),
        (transactional(batch(1, 1)), 0),
    ],
    ids=[
        "gap",
        "repeated",
        "falling epoch",
        "epoch above ours",
        "cut short",
        "damaged",
        "garbage",
        "junk behind",
        "transactional",
    ],
)
def test_only_what_continues_our_log_is_appended(records: bytes, taken: int) -> None:
    """And all behind what does not is dropped, without a word to the peer (scenario L10)."""
    core = follower(1, epoch=1, leader_id=2)
    actions = reply(core, 2, fetch_response(epoch=1, leader_id=2, records=records))
    appended = [one for action in actions if isinstance(action, AppendToLog) for one in action.batches]

    assert len(appended) == taken
    assert core.state.log.end_offset == 1 + taken
    assert core.role is Role.FOLLOWER


def test_damaged_answers_are_not_asked_for_in_a_hot_loop() -> None:
    """Kafka re-fetches 1,700 times a second; we pause."""
    core = follower(1, epoch=1, leader_id=2)
    actions = reply(core, 2, fetch_response(epoch=1, leader_id=2, records=b"?" * 80))

    assert not [action for action in actions if isinstance(action, SendRequest) and action.destination == 2]
    assert core.state.refused == {"corrupt batch": 1}


def test_the_high_watermark_of_a_follower_is_bounded_by_its_own_log() -> None:
    """min(own end, leader's); -1 is ignored, and so is a smaller one."""
    core = follower(1, 1, epoch=1, leader_id=2)
    assert commits(reply(core, 2, fetch_response(epoch=1, leader_id=2, high_watermark=-1), now_ms=500)) == []
    assert commits(reply(core, 2, fetch_response(epoch=1, leader_id=2, high_watermark=9), now_ms=501)) == [2]
    assert commits(reply(core, 2, fetch_response(epoch=1, leader_id=2, high_watermark=1), now_ms=502)) == []
    assert core.high_watermark == 2


@pytest.mark.parametrize(
    ("epochs", "diverging", "end"),
    [
        ((1, 1, 1), (1, 1), 1),
        ((1, 1, 3), (2, 2), 2),
        ((1, 1, 2, 2), (9, 1), 2),
        ((1, 1, 2, 2), (0, 0), 0),
    ],
    ids=["shorter there", "epoch unknown here", "longer there", "nothing in common"],
)
def test_a_follower_truncates_to_the_end_of_the_common_epoch(
    epochs: tuple[int, ...], diverging: tuple[int, int], end: int
) -> None:
    """min of both ends of the epoch, or our end of the one before it (scenario L2)."""
    core = follower(*epochs, epoch=5, leader_id=2)
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, diverging=diverging))

    assert actions[0] == TruncateLog(end)
    assert core.state.log.end_offset == end


def test_what_is_committed_is_never_truncated() -> None:
    """Somebody has lost data, and our copy may be the only one: refuse, pause, say so (scenario L3)."""
    core = follower(1, 1, 1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=2))
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, diverging=(1, 1)))

    assert not [action for action in actions if isinstance(action, TruncateLog)]
    assert (core.state.log.end_offset, core.role) == (3, Role.FOLLOWER)
    assert core.state.refused == {"truncation below the high watermark": 1}


def test_a_truncation_inside_a_batch_ends_where_the_log_says() -> None:
    """Only whole batches go: the next Fetch names the real end, for the leader counts what it names."""
    core = follower(1, 1, 1, epoch=5, leader_id=2)
    truncating = reply(core, 2, fetch_response(epoch=5, leader_id=2, diverging=(2, 1)))
    assert requests(truncating, FetchRequest) == []
    (asked,) = requests(core.handle(LogTruncated(1), core.state.now_ms), FetchRequest)

    assert core.state.log.end_offset == 1
    assert partition_of(asked.request).fetch_offset == 1


def test_a_silent_leader_is_given_up_after_the_fetch_timeout() -> None:
    """Restarted by every answer, also an empty one."""
    core = follower(1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=0), now_ms=1_500)
    core.handle(TimeoutReached(), 3_499)
    assert core.role is Role.FOLLOWER
    core.handle(TimeoutReached(), 3_500)
    assert core.role is Role.PROSPECTIVE


def test_a_refused_reconnect_means_a_dead_leader() -> None:
    """Beyond Kafka: tens of milliseconds instead of two seconds; the voters stand in slots, not all at once."""
    deadlines = []
    for own_id in (1, 3):
        core = follower(1, own_id=own_id, epoch=5, leader_id=2)
        core.handle(ConnectionLost(2, refused=False), 10)
        assert core.role is Role.FOLLOWER
        core.handle(ConnectionLost(2, refused=True), 10)
        deadlines.append(core.state.role_state.fetch_deadline_ms - 10)  # type: ignore[union-attr]

    slot = core.state.config.leader_loss_stagger_ms
    assert deadlines[0] <= slot // 4
    assert slot <= deadlines[1] <= slot + slot // 4


def test_a_dead_leader_that_we_had_to_go_back_to_is_given_up_again_at_once() -> None:
    """The pre-vote was refused, perhaps too early; the next refused connection says the same as the first."""
    core = follower(1, epoch=5, leader_id=2)
    core.handle(ConnectionLost(2, refused=False), 10)
    core.handle(ConnectionLost(2, refused=True), 10)
    core.handle(TimeoutReached(), 30)
    assert core.role is Role.PROSPECTIVE
    now_ms = core.state.role_state.election_deadline_ms  # type: ignore[union-attr]
    core.handle(TimeoutReached(), now_ms)
    assert core.role is Role.FOLLOWER
    core.handle(ConnectionLost(2, refused=True), now_ms + 50)

    assert core.state.role_state.fetch_deadline_ms <= now_ms + 80  # type: ignore[union-attr]


def lose_pre_vote(core: Replica) -> int:
    """Let the leader, replica 2, refuse connections until it is given up, and the others keep it; return how long."""
    began_ms = core.state.now_ms
    while core.role is Role.FOLLOWER:
        core.handle(ConnectionLost(2, refused=True), core.state.now_ms + 1)
    for voter_id in (3, 4, 5):
        if core.role is Role.PROSPECTIVE:
            answer_vote(core, voter_id, granted=False, pre_vote=True)
    assert core.role is Role.FOLLOWER
    return core.state.now_ms - began_ms


def test_a_leader_that_only_we_cannot_reach_is_given_up_ever_more_rarely() -> None:
    """Its other followers refuse us at once: one broken link cost hundreds of pre-votes a second."""
    core = follower(1, epoch=5, leader_id=2, voters=voter_set(1, 2, 3, 4, 5))
    core.handle(ConnectionLost(2, refused=False), 10)
    slot_ms, timeout_ms = core.state.config.leader_loss_stagger_ms, core.state.config.fetch_timeout_ms
    kept_ms = [lose_pre_vote(core) for _ in range(20)]
    pauses_ms = [0, 0, *(min(slot_ms * (2**number - 1), timeout_ms) for number in range(1, 19))]

    for kept, pause in zip(kept_ms, pauses_ms, strict=True):
        assert pause <= kept <= pause + slot_ms
    assert kept_ms[-1] >= timeout_ms


def test_a_leader_that_answered_again_is_given_up_as_soon_as_the_first_time() -> None:
    core = follower(1, epoch=5, leader_id=2, voters=voter_set(1, 2, 3, 4, 5))
    core.handle(ConnectionLost(2, refused=False), 10)
    for _ in range(10):
        lose_pre_vote(core)
    reply(core, 2, fetch_response(epoch=5, leader_id=2))
    core.handle(ConnectionLost(2, refused=False), core.state.now_ms)

    assert lose_pre_vote(core) <= core.state.config.leader_loss_stagger_ms


def test_a_refused_connection_that_was_never_there_proves_nothing() -> None:
    """The leader may not listen yet: its BeginQuorumEpoch came over a connection of its own."""
    core = follower(1, epoch=5, leader_id=2)
    core.handle(ConnectionLost(2, refused=True), 10)

    assert core.state.role_state.fetch_deadline_ms == 2_000  # type: ignore[union-attr]


def test_an_answer_that_names_a_newer_leader_is_followed() -> None:
    """With its endpoint, at once."""
    core = follower(1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=6, leader_id=3, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))

    assert core.leader_and_epoch == LeaderAndEpoch(3, 6)


def test_an_answer_of_an_older_epoch_is_ignored() -> None:
    """And not asked for again at once."""
    core = follower(1, epoch=5, leader_id=2)
    actions = reply(core, 2, fetch_response(epoch=4, leader_id=3, records=data(batch(1, 4))))

    assert core.leader_and_epoch == LeaderAndEpoch(2, 5)
    assert core.state.log.end_offset == 1
    assert not [action for action in actions if isinstance(action, SendRequest) and action.destination == 2]


def test_a_fetch_says_all_that_kafka_says() -> None:
    """The fields of a raft Fetch, with the values that Kafka's replicas send (captured)."""
    core = follower(1, 1, epoch=5, leader_id=2)
    request: FetchRequest = outstanding_to(core, 2).request
    partition = partition_of(request)

    assert (request.cluster_id, request.max_wait_ms, request.min_bytes, request.max_bytes) == (
        "cluster",
        500,
        0,
        1 << 20,
    )
    assert (request.session_id, request.session_epoch, request.isolation_level) == (0, -1, 0)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, -1)
    assert (partition.current_leader_epoch, partition.fetch_offset, partition.last_fetched_epoch) == (5, 2, 1)
    assert (partition.log_start_offset, partition.partition_max_bytes, partition.high_watermark) == (-1, 0, -1)


def test_a_leader_that_does_not_hold_an_empty_fetch_is_not_asked_again_at_once() -> None:
    """Kafka's followers ask as fast as it answers. News is no reason to wait; nor is an answer that took its time."""
    core = follower(1, 1, epoch=1, leader_id=2)
    assert commits(reply(core, 2, fetch_response(epoch=1, leader_id=2, high_watermark=1), now_ms=1)) == [1]
    assert fetches(core), "there was news"
    reply(core, 2, fetch_response(epoch=1, leader_id=2, high_watermark=1), now_ms=2)
    assert not fetches(core)

    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert 20 <= core.state.now_ms <= 41
    reply(core, 2, fetch_response(epoch=1, leader_id=2, high_watermark=1), now_ms=core.state.now_ms + 300)
    assert fetches(core)


def fetches(core: Replica) -> bool:
    """Whether a Fetch to the leader is outstanding."""
    return not core.state.connections.is_ready(2, 10**9)


def test_a_follower_with_a_full_disk_takes_nothing_and_stays_a_follower() -> None:
    """What it asks for again it has not acknowledged; that it is offered shows that the leader lives."""
    core = follower(1, 1)
    core.handle(DiskSpaceChanged(True), core.state.now_ms)
    for _ in range(20):
        batch = encode_batch([b"x"], timestamp_ms=0, base_offset=2, epoch=1)
        actions = reply(core, 2, fetch_response(epoch=1, leader_id=2, records=bytes(batch.data), high_watermark=3))
        assert not [action for action in actions if isinstance(action, AppendToLog)]
        core.handle(TimeoutReached(), core.deadline_ms() or 0)

    assert (core.role, core.state.log.end_offset) == (Role.FOLLOWER, 2)
    request = outstanding_to(core, 2).request
    assert (request.topics[0].partitions[0].fetch_offset, request.max_bytes) == (2, 1)
    core.handle(DiskSpaceChanged(False), core.state.now_ms)
    actions = reply(core, 2, fetch_response(epoch=1, leader_id=2, records=bytes(batch.data), high_watermark=3))
    assert [action for action in actions if isinstance(action, AppendToLog)]


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
