"""Fetch, field by field: bounds, ids, orders, and answers that fit nothing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import (
    AdvanceHighWatermark,
    AppendToLog,
    SendRecords,
    SendResponse,
    TruncateLog,
)
from kraftlib.consensus.events import Failure, RequestFailed, TimeoutReached
from kraftlib.consensus.roles import Follower
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from tests.consensus.build import (
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
    partition_of,
    reply,
    requests,
    tell,
    voter_set,
)
from tests.consensus.test_replication import batch, data


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


def test_an_answer_to_a_question_about_another_end_is_not_used() -> None:
    """Its records do not continue what is here now."""
    core = follower(1, 1, epoch=5, leader_id=2)
    core.state.log.truncate(1)
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, records=data(batch(1, 5))))

    assert not [action for action in actions if isinstance(action, AppendToLog)]
    assert core.state.connections.is_backing_off(2, core.state.now_ms)


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


def test_a_bootstrap_server_that_names_the_leaders_snapshot_is_not_asked_again_at_once() -> None:
    """The snapshot is to be had from the leader, which cannot be asked just now: asking others goes on, but slowly."""
    core = follower(1, epoch=5, leader_id=2, own_id=9, bootstrap_servers=(Endpoint("b", 1),))
    core.handle(RequestFailed(outstanding_to(core, 2).correlation_id, Failure.DISCONNECTED), core.state.now_ms)
    for _ in range(8):
        core.state.connections.failed(2, core.state.now_ms, 500)
    (asked,) = requests(core.handle(TimeoutReached(), core.state.now_ms + 1), FetchRequest)
    assert asked.destination == -2

    actions = reply(core, -2, fetch_response(epoch=5, leader_id=2, high_watermark=40, snapshot=(30, 5)))
    role = core.state.role_state
    assert isinstance(role, Follower)
    assert role.download is not None
    assert requests(actions, FetchRequest) == []
    (again,) = requests(core.handle(TimeoutReached(), core.deadline_ms()), FetchRequest)
    assert again.destination == -2
