"""Fetch, field by field: bounds, ids, orders, and answers that fit nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import (
    AdvanceHighWatermark,
    AppendToLog,
    SendRecords,
    SendRequest,
    SendResponse,
    TruncateLog,
)
from kraftlib.consensus.events import Failure, LogTruncated, RequestFailed, ResponseReceived, TimeoutReached
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.requests import bootstrap_servers
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from tests.consensus.build import (
    as_follower,
    as_leader,
    ask,
    batch,
    begin_request,
    commits,
    fetch_request,
    fetch_response,
    flush,
    follower,
    leader,
    log_view,
    outstanding_to,
    partition_of,
    place,
    reply,
    requests,
    tell,
    vote_request,
    voter_set,
)
from tests.consensus.test_fetch_follower import data


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


def test_a_late_answer_from_another_address_of_the_leader_cuts_nothing_off() -> None:
    """The leader has counted what was fetched from it meanwhile: without it, committed records would be lost."""
    core, (asked,) = doubting(1, 1, 1, 1, 1, 2, 2, epoch=3, servers=(Endpoint("balancer", 1),))
    late = fetch_response(epoch=3, leader_id=2, diverging=(5, 1))
    assert (asked.destination, partition_of(asked.request).fetch_offset) == (-2, 7)
    while not any(one.destination == 2 for one in core.state.connections._outstanding.values()):
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


def test_a_search_for_the_leader_that_the_fetch_to_it_has_overtaken_is_no_alarm() -> None:
    """It says what its sender had when it did not know the leader yet: as nobody, so that no voter seems to go back."""
    core = follower(1, epoch=5, leader_id=2)
    tell(core, vote_request(epoch=6, replica_id=3))
    (search,) = [one for one in core.state.connections._outstanding.values() if isinstance(one.request, FetchRequest)]
    elected = leader(1)
    flush(elected)
    tell(elected, fetch_request(epoch=elected.epoch, offset=2, last_epoch=elected.epoch, replica_id=2), version=18)
    (topic,) = search.request.topics
    partition = attrs.evolve(topic.partitions[0], current_leader_epoch=elected.epoch)
    late = attrs.evolve(search.request, topics=(attrs.evolve(topic, partitions=(partition,)),))
    tell(elected, late, version=18, request_id=78)

    assert elected.state.refused == {}
    assert as_leader(elected).progress[2].end_offset == 2
