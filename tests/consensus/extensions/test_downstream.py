"""A replica that does not lead serves observers of ours: with what, when, and whom it refuses (decision 0021)."""

from __future__ import annotations

import struct
from typing import Any

import attrs
import pytest

from kraftlib.consensus.actions import AnswerObservers, SendResponse, SendSnapshotChunk
from kraftlib.consensus.events import ShutdownRequested, SnapshotCreated, StorageFailed, TimeoutReached
from kraftlib.consensus.extensions.upstreams import AGE_TAG, MARK
from kraftlib.consensus.replica import Replica
from kraftlib.types import OffsetAndEpoch, OffsetRange
from kraftlib.wire.apis import ErrorCode
from tests.consensus.build import (
    batch,
    begin_request,
    fetch_request,
    fetch_response,
    flush,
    follower,
    leader,
    partition_of,
    reply,
    snapshot_request,
    tell,
)

CHILD = 40


def upstream(*epochs: int, committed: int = 3, **more: Any) -> Replica:
    """A follower of 2 in epoch 5 with four records, three of which are committed, as it has heard now."""
    core = follower(*(epochs or (1, 1, 1, 1)), epoch=5, leader_id=2, **more)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=committed))
    return core


def fetch(
    core: Replica, offset: int, request_id: int = 77, *, version: int = 18, marked: bool = True, **more: Any
) -> list[Any]:
    """Fetch as a child; what the core itself asks meanwhile is left out."""
    numbers = {"epoch": core.epoch, "last_epoch": 1, "replica_id": CHILD, "high_watermark": offset, **more}
    request = fetch_request(offset=offset, **numbers)
    request = attrs.evolve(request, unknown_tagged_fields=MARK if marked else ())
    return answers(tell(core, request, version=version, request_id=request_id))


def answers(actions: list[Any]) -> list[Any]:
    return [action for action in actions if isinstance(action, AnswerObservers | SendResponse | SendSnapshotChunk)]


def commit(core: Replica, offset: int, **more: Any) -> list[Any]:
    """The leader says that records are committed."""
    core.state.connections.retry_now(2)
    core.handle(TimeoutReached(), core.state.now_ms)
    return answers(reply(core, 2, fetch_response(epoch=core.epoch, leader_id=2, high_watermark=offset, **more)))


def age_of(answer: Any) -> int:
    ((tag, data),) = answer.response.unknown_tagged_fields
    assert tag == AGE_TAG
    return int(struct.unpack(">i", data)[0])


def error_of(actions: list[Any]) -> int:
    (answer,) = actions
    return int(partition_of(answer.response).error_code)


def test_it_serves_what_is_committed_and_no_more() -> None:
    core = upstream()
    (answer,) = fetch(core, 1)

    assert (answer.request_ids, answer.start_offset, answer.end_offset) == ((77,), 1, 3)
    partition = partition_of(answer.response)
    assert (partition.high_watermark, partition.error_code) == (3, 0)
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 5)
    assert answer.response.node_endpoints[0].node_id == 2


def test_a_child_that_has_everything_waits_until_more_is_committed() -> None:
    core = upstream()
    assert fetch(core, 3) == []
    (answer,) = commit(core, 4)

    assert (answer.request_ids, answer.start_offset, answer.end_offset) == ((77,), 3, 4)


def test_it_hears_nothing_new_at_the_end_of_its_time_but_how_old_the_news_is() -> None:
    core = upstream()
    fetch(core, 3)
    assert answers(core.handle(TimeoutReached(), 499)) == []
    (answer,) = answers(core.handle(TimeoutReached(), 500))

    assert (answer.request_ids, answer.start_offset, age_of(answer)) == ((77,), None, 500)


def test_many_children_are_told_in_rounds() -> None:
    core = upstream(observers_at_once=3)
    for number in range(7):
        fetch(core, 3, number, replica_id=CHILD + number)
    told = {core.state.now_ms: commit(core, 4)}
    for now_ms in range(1, 10):
        told[now_ms] = answers(core.handle(TimeoutReached(), now_ms))

    assert {now_ms: one[0].request_ids for now_ms, one in told.items() if one} == {
        0: (0, 1, 2), 2: (3, 4, 5), 4: (6,)
    }  # fmt: skip


def test_a_child_that_keeps_up_waits_for_its_turn_and_one_that_is_behind_does_not() -> None:
    core = upstream(1, 1, 1, 1, 1, observers_at_once=1)
    for number in (CHILD, CHILD + 1):
        fetch(core, 3, number, replica_id=number)
    assert [one.request_ids for one in commit(core, 4)] == [(CHILD,)]
    assert fetch(core, 4, 90) == []
    assert commit(core, 5) == [], "the next round is not due yet"
    assert fetch(core, 4, 91, replica_id=CHILD + 1) == [], "it has what there was at its last Fetch"
    (answer,) = fetch(core, 2, 92, replica_id=CHILD + 2)
    assert answer.request_ids == (92,)


def test_a_child_that_is_ahead_waits_and_gets_no_record_before_it_has_asked_again() -> None:
    """Its log may not be a prefix of this one."""
    core = upstream(1, 1, 1, 1, 1)
    assert fetch(core, 4) == []
    (answer,) = commit(core, 5)

    assert (answer.request_ids, answer.start_offset) == ((77,), None)
    assert partition_of(answer.response).high_watermark == 5


def test_a_log_that_is_no_prefix_is_for_the_leader_to_judge() -> None:
    core = upstream(1, 1, 2, 2)

    assert error_of(fetch(core, 3, last_epoch=1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_child_before_the_log_is_sent_to_the_snapshot_and_gets_it() -> None:
    core = upstream()
    snapshot_id = OffsetAndEpoch(offset=2, epoch=1)
    core.handle(SnapshotCreated(snapshot_id), 0)
    (answer,) = fetch(core, 0)
    named = partition_of(answer.response).snapshot_id
    assert (named.end_offset, named.epoch) == (2, 1)

    request = attrs.evolve(snapshot_request(snapshot_id, epoch=5), unknown_tagged_fields=MARK)
    (chunk,) = answers(tell(core, request))
    assert isinstance(chunk, SendSnapshotChunk)
    assert core.state.sent == {snapshot_id: 0}, "it is kept while it is being sent"
    assert error_of(answers(tell(core, snapshot_request(snapshot_id, epoch=5)))) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"marked": False}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 6}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"replica_id": 1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"cluster_id": None}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"max_wait_ms": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_others_are_answered_as_ever(changed: dict[str, Any], error: ErrorCode) -> None:
    """A replica of Kafka that is wrong about the leader learns who it is, and nothing else."""
    assert error_of(fetch(upstream(), 3, **changed)) == error


def test_it_does_not_serve_before_it_has_everything_that_is_committed() -> None:
    core = follower(1, epoch=5, leader_id=2)
    assert error_of(fetch(core, 0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    commit(core, 3, records=batch(1, 5).data)
    flush(core)
    assert error_of(fetch(core, 1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader has more"
    commit(core, 3, records=batch(2, 5).data)

    assert fetch(core, 3, last_epoch=5) == []


@pytest.mark.parametrize("why", ["private", "damaged", "stopping"])
def test_it_serves_no_more(why: str) -> None:
    core = upstream(**({"private_apis": False} if why == "private" else {}))
    waiting = [] if why == "private" else fetch(core, 3, 5)
    assert waiting == []
    told: list[Any] = []
    if why == "damaged":
        told = answers(core.handle(StorageFailed((OffsetRange(0, 1),)), 0))
    elif why == "stopping":
        told = answers(core.handle(ShutdownRequested(1_000), 0))

    assert [one.request_id for one in told] == ([] if why == "private" else [5])
    assert error_of(told or fetch(core, 3)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(fetch(core, 3)) in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE)


def test_children_that_wait_hear_of_a_new_leader_at_once() -> None:
    core = upstream()
    fetch(core, 3)
    told = answers(tell(core, begin_request(epoch=6, leader_id=3), request_id=1))

    refused = next(one for one in told if one.request_id == 77)
    leader_now = partition_of(refused.response).current_leader
    assert partition_of(refused.response).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (leader_now.leader_id, leader_now.leader_epoch) == (3, 6)


def test_a_voter_that_doubts_its_leader_serves_on() -> None:
    """What is committed stays so. If every upstream refused now, all observers would turn to the next leader."""
    core = upstream()
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    while core.role.value == "follower":
        core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert core.role.value == "prospective"
    (answer,) = fetch(core, 1)

    assert answer.end_offset == 3
    assert age_of(answer) >= 2_000


def test_the_leader_serves_an_observer_that_takes_it_for_an_upstream_as_any_other() -> None:
    """The observer itself drops what is not committed."""
    core = leader()
    request = attrs.evolve(
        fetch_request(epoch=core.epoch, offset=0, last_epoch=0, replica_id=CHILD), unknown_tagged_fields=MARK
    )
    (answer,) = [one for one in tell(core, request, version=18) if getattr(one, "request_id", 0) == 77]

    assert (answer.start_offset, answer.response.unknown_tagged_fields) == (0, ())


def test_a_damaged_age_is_an_old_one() -> None:
    core = follower(1, own_id=9, epoch=5, leader_id=2, upstreams="localhost:9007")
    response = attrs.evolve(fetch_response(epoch=5, leader_id=2), unknown_tagged_fields=((AGE_TAG, b"?"),))
    number = core.state.upstreams.chosen
    assert number is not None
    reply(core, number, response, now_ms=100)

    assert core.state.upstreams.heard_ms == 0
