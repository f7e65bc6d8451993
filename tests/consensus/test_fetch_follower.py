"""Fetch, both sides (KIP-595, Fetch)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import (
    AdvanceHighWatermark,
    AppendToLog,
    FlushLog,
    PersistElection,
    SendRequest,
    TruncateLog,
)
from kraftlib.consensus.events import (
    ConnectionLost,
    DiskSpaceChanged,
    Failure,
    Flushed,
    LogTruncated,
    RequestFailed,
    ResponseReceived,
    TimeoutReached,
)
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.requests import bootstrap_servers
from kraftlib.consensus.roles import Role
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.checksum import crc32c
from kraftlib.types import ZERO_UUID, Endpoint, LeaderAndEpoch, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from tests.consensus.build import (
    answer_vote,
    as_follower,
    batch,
    begin_request,
    commits,
    fetch_request,
    fetch_response,
    flush,
    follower,
    outstanding_to,
    partition_of,
    pending_requests,
    place,
    reply,
    requests,
    tell,
    vote_request,
    voter_set,
)

TOPIC = fetch_request(epoch=1, offset=0, last_epoch=0).topics[0]


def data(*batches: Batch) -> bytes:
    """Their bytes, back to back."""
    return b"".join(bytes(one.data) for one in batches)


def transactional(one: Batch) -> bytes:
    """The batch with an attribute that KRaft never sets, and a checksum that fits."""
    changed = bytearray(one.data)
    changed[22] |= 0x10
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


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
    [((1, 1, 1), (1, 1), 1), ((1, 1, 3), (2, 2), 2), ((1, 1, 2, 2), (9, 1), 2), ((1, 1, 2, 2), (0, 0), 0)],
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


def test_a_high_watermark_amid_a_batch_costs_the_vote_and_stops_nobody() -> None:
    """A leader that names one and then a divergence there takes committed records with the rest of the batch."""
    core = follower(1, 1, 1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=2))
    reply(core, 2, fetch_response(epoch=5, leader_id=2, diverging=(2, 1)))
    actions = core.handle(LogTruncated(1), core.state.now_ms)

    assert [action.election.amnesiac for action in actions if isinstance(action, PersistElection)] == [True]
    assert (core.status().log_end_offset, core.high_watermark, core.role) == (1, 2, Role.FOLLOWER)


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


@pytest.mark.parametrize(
    ("wanted", "reserve", "asked"), [(1_000, 8_000, 1_000), (8_000, 8_000, 4_000), (8_000, 2, 2), (8_000, 0, 8_000)]
)
def test_a_follower_asks_for_what_its_disk_reserve_can_hold(wanted: int, reserve: int, asked: int) -> None:
    """One answer and a vote fit into the reserve, if somebody else fills the disk before the answer is here."""
    core = follower(1, 1, fetch_max_bytes=wanted, disk_reserve_bytes=reserve)

    assert outstanding_to(core, 2).request.max_bytes == asked


def doubting(*epochs: int, epoch: int, servers: tuple[Endpoint, ...]) -> tuple[Replica, list[SendRequest]]:
    """A follower of 2 whose Fetches have failed twice, and the Fetches by which it asks others who leads."""
    core = follower(*epochs, epoch=epoch, leader_id=2, bootstrap_servers=servers)
    asked: list[SendRequest] = []
    for failure in (1, 2):
        failed = RequestFailed(outstanding_to(core, 2).correlation_id, Failure.DISCONNECTED)
        asked += requests(core.handle(failed, core.state.now_ms), FetchRequest)
        if failure == 1:
            core.handle(TimeoutReached(), core.deadline_ms() or 0)
    return core, [request for request in asked if request.destination != 2]


def test_a_fetch_says_of_which_disk_it_is() -> None:
    core = follower(1, epoch=5, leader_id=2, directory_id=UUID(int=7))

    assert partition_of(outstanding_to(core, 2).request).replica_directory_id == UUID(int=7)


def test_a_divergence_at_our_own_end_truncates_nothing() -> None:
    """It would be asked for and answered for ever."""
    core = follower(1, 1, epoch=5, leader_id=2)
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, diverging=(2, 1)))

    assert not [action for action in actions if isinstance(action, TruncateLog)]
    assert core.state.refused == {"empty truncation": 1}


@pytest.mark.parametrize(
    "change", [{"topic_id": UUID(int=5)}, {"partition_index": 1}, {"partitions": 0}, {"topics": 2}]
)
def test_records_of_another_partition_are_not_appended(change: dict[str, Any]) -> None:
    core = follower(1, epoch=5, leader_id=2)
    response = fetch_response(epoch=5, leader_id=2, records=data(batch(1, 5)))
    (topic,) = response.responses
    if "topic_id" in change:
        topic = attrs.evolve(topic, **change)
    elif "partition_index" in change:
        topic = attrs.evolve(topic, partitions=(attrs.evolve(topic.partitions[0], **change),))
    elif "partitions" in change:
        topic = attrs.evolve(topic, partitions=())
    actions = reply(core, 2, attrs.evolve(response, responses=(topic,) * change.get("topics", 1)))

    assert not [action for action in actions if isinstance(action, AppendToLog)]
    assert core.state.connections.is_backing_off(2, core.state.now_ms)


def test_a_late_answer_from_another_address_of_the_leader_cuts_nothing_off() -> None:
    """The leader has counted what was fetched from it meanwhile: without it, committed records would be lost."""
    core, (asked,) = doubting(1, 1, 1, 1, 1, 2, 2, epoch=3, servers=(Endpoint("balancer", 1),))
    late = fetch_response(epoch=3, leader_id=2, diverging=(5, 1))
    assert (asked.destination, partition_of(asked.request).fetch_offset) == (-2, 7)
    while not any(one.destination == 2 for one in pending_requests(core)):
        core.handle(TimeoutReached(), core.deadline_ms() or 0)
    reply(core, 2, fetch_response(epoch=3, leader_id=2, diverging=(5, 1)))
    core.handle(LogTruncated(5), core.state.now_ms)
    reply(core, 2, fetch_response(epoch=3, leader_id=2, records=data(batch(5, 3), batch(6, 3))))
    acknowledged = requests(flush(core), FetchRequest)
    assert [partition_of(fetch.request).fetch_offset for fetch in acknowledged] == [7]

    actions = core.handle(ResponseReceived(asked.correlation_id, late), core.state.now_ms)
    assert [action for action in actions if isinstance(action, TruncateLog)] == []
    assert core.state.log.end == OffsetAndEpoch(offset=7, epoch=3)


@pytest.mark.parametrize(
    "content",
    [{"diverging": (1, 1)}, {"snapshot": (30, 3)}, {"records": data(batch(3, 3))}],
    ids=["divergence", "snapshot", "records"],
)
def test_only_the_answer_to_a_fetch_from_the_leader_continues_the_log(content: dict[str, Any]) -> None:
    core, (asked,) = doubting(1, 1, 2, epoch=3, servers=(Endpoint("balancer", 1),))
    before, deadline_ms = core.state.log.end, as_follower(core).fetch_deadline_ms
    answer = fetch_response(epoch=3, leader_id=2, high_watermark=1, **content)
    actions = core.handle(ResponseReceived(asked.correlation_id, answer), core.state.now_ms + 1)

    changes = AppendToLog | TruncateLog | AdvanceHighWatermark
    assert [action for action in actions if isinstance(action, changes)] == []
    assert (core.state.log.end, as_follower(core).download, core.high_watermark) == (before, None, None)
    assert as_follower(core).fetch_deadline_ms == deadline_ms
    assert core.state.connections.is_backing_off(-2, core.state.now_ms)


def test_the_leader_we_follow_is_no_bootstrap_server() -> None:
    """Whichever way it is named: one replica is asked one thing at a time."""
    _, asked = doubting(1, epoch=3, servers=(place(2), place(1)))

    assert asked == []


def test_a_bootstrap_server_at_the_address_of_a_voter_is_that_voter() -> None:
    _, (asked,) = doubting(1, epoch=3, servers=(place(2), place(3), place(1)))

    assert (asked.destination, asked.endpoint) == (3, place(3))


def test_the_leader_is_where_it_says_and_not_where_the_voter_set_has_it() -> None:
    """Another replica may be reached there by now."""
    core = follower(1, epoch=3, leader_id=2, bootstrap_servers=(place(2), Endpoint("moved", 7)))
    where = (BeginQuorumEpochRequest.LeaderEndpoint(name="CONTROLLER", host="moved", port=7),)
    tell(core, begin_request(epoch=4, leader_id=2, leader_endpoints=where))

    assert bootstrap_servers(core.state) == [(-2, place(2))]


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.truncate(1),
        lambda log: log.install(OffsetAndEpoch(offset=2, epoch=2), []),
        lambda log: log.install(OffsetAndEpoch(offset=2, epoch=1), []),
    ],
    ids=["offset", "epoch", "log version"],
)
def test_an_answer_counts_for_the_exact_question_that_was_asked(change: Callable[[LogView], None]) -> None:
    core = follower(1, 1, epoch=5, leader_id=2)
    change(core.state.log)
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=2, diverging=(0, 0)))

    assert [action for action in actions if isinstance(action, AppendToLog | TruncateLog | AdvanceHighWatermark)] == []
    assert core.state.connections.is_backing_off(2, core.state.now_ms)
