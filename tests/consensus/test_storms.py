"""No storms: whatever its peers answer, at once and always, a replica asks each of them a few dozen times a second.

Kafka's replicas ask up to 3,000 times a second after some answers.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kraftlib.consensus import responses
from kraftlib.consensus.actions import FlushLog, SendRequest, TruncateLog
from kraftlib.consensus.events import (
    ConnectionLost,
    Event,
    Failure,
    Flushed,
    LogTruncated,
    ReadBarrierRequested,
    RequestFailed,
    ResignRequested,
    ResponseReceived,
    StateHashed,
    TimeoutReached,
)
from kraftlib.consensus.replica import RESPONSES, Replica
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus.build import follower, leader, replica
from tests.consensus.extensions.test_read_index import proven

SECONDS = 2
LONGER = 4
"""Until each kind of request is sent: a leader that resigns, or has a priority, takes its time."""
PER_PEER_AND_SECOND = 60
"""A pause of 20 to 40 ms after each answer in vain, and more after failures in a row."""

Answer = Callable[[Replica, SendRequest], Event]


def refused(error: int) -> Answer:
    """Everything is refused at top level."""
    return lambda core, sent: ResponseReceived(sent.correlation_id, responses.top_level(sent.request, error))


def in_partition(error: int, *, leader_id: int, ahead: int) -> Answer:
    """The raft requests are refused with this error in the partition, by somebody who names this leader and epoch."""

    def answer(core: Replica, sent: SendRequest) -> Event:
        epoch = core.epoch + ahead
        where = {"leader_id": leader_id, "leader_epoch": epoch}
        response: Any
        match sent.request:
            case FetchRequest():
                current = FetchResponse.LeaderIdAndEpoch(**where)
                row: Any = FetchResponse.PartitionData(error_code=error, current_leader=current, records=b"")
                topic: Any = FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(row,))
                response = FetchResponse(responses=(topic,))
            case VoteRequest():
                row = VoteResponse.PartitionData(error_code=error, vote_granted=False, **where)
                response = VoteResponse(topics=(VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(row,)),))
            case BeginQuorumEpochRequest():
                response = quorum_epoch(BeginQuorumEpochResponse, error, where)
            case EndQuorumEpochRequest():
                response = quorum_epoch(EndQuorumEpochResponse, error, where)
            case _:
                return refused(error)(core, sent)
        return ResponseReceived(sent.correlation_id, response)

    return answer


def quorum_epoch(kind: Any, error: int, where: dict[str, int]) -> Any:
    row = kind.PartitionData(partition_index=0, error_code=error, **where)
    return kind(error_code=0, topics=(kind.TopicData(topic_name=METADATA_TOPIC, partitions=(row,)),))


def broken(failure: Failure) -> Answer:
    """No answer ever comes, at once."""
    return lambda core, sent: RequestFailed(sent.correlation_id, failure)


def asked(core: Replica, answer: Answer, *, reads: bool = False, seconds: int = SECONDS) -> Counter[tuple[int, str]]:
    """Let everybody answer within a millisecond for some seconds; count the requests by destination and kind."""
    counts: Counter[tuple[int, str]] = Counter()
    due: list[tuple[int, int, Event]] = []
    now, number = core.state.now_ms, 0
    end = now + seconds * 1_000

    def tell(event: Event) -> None:
        nonlocal number
        waiting = [event]
        while waiting:
            for action in core.handle(waiting.pop(0), now):
                match action:
                    case SendRequest():
                        counts[action.destination, type(action.request).__name__] += 1
                        number += 1
                        assert number < 50_000, counts
                        heapq.heappush(due, (now + 1, number, answer(core, action)))
                    case FlushLog(version):
                        waiting.append(Flushed(core.state.log.end_offset, version))
                    case TruncateLog(offset):
                        waiting.insert(0, LogTruncated(offset))

    if reads:
        for request in range(50):
            tell(ReadBarrierRequested(request, seconds * 1_000))
    tell(TimeoutReached())
    while now < end:
        deadline = core.deadline_ms()
        now = max(now, min(end, *([deadline] if deadline is not None else []), *([due[0][0]] if due else [])))
        if due and due[0][0] <= now:
            tell(heapq.heappop(due)[2])
        else:
            assert deadline is None or deadline <= now or now == end
            tell(TimeoutReached())
            if (after := core.deadline_ms()) is not None and after <= now and not due:
                raise AssertionError(f"it wants to be woken at {after}, and it is {now}")
    return counts


def resigned() -> Replica:
    core = leader()
    core.handle(ResignRequested(core.epoch), core.state.now_ms)
    return core


def bereft() -> Replica:
    """A follower whose leader refuses connections."""
    core = follower(1, 1)
    core.handle(ConnectionLost(2, refused=False), 0)
    core.handle(ConnectionLost(2, refused=True), 0)
    return core


def comparing() -> Replica:
    """A follower that compares its state with that of the others."""
    core = follower(1, 1, digest_interval_ms=1_000)
    core.handle(StateHashed(offset=2, snapshot_version=0, sha256=bytes(32)), 0)
    return core


REPLICAS: dict[str, Callable[[], Replica]] = {
    "unattached": lambda: replica(1, 1),
    "follower": lambda: follower(1, 1),
    "bereft follower": bereft,
    "wanted follower": lambda: follower(1, 1, election_priority=50),
    "comparing follower": comparing,
    "observer": lambda: follower(1, 1, own_id=9),
    "joining observer": lambda: follower(1, 1, own_id=9, auto_join=True),
    "leader": lambda: proven(leader()),
    "resigned leader": resigned,
    "among Kafka's controllers": lambda: replica(1, 1, yield_to=(2, 3)),
}

ANSWERS: dict[str, Answer] = {
    **{f"top level {error.name}": refused(error) for error in ErrorCode if error is not ErrorCode.NONE},
    **{
        f"{error.name}, leader {leader_id}, {ahead} ahead": in_partition(error, leader_id=leader_id, ahead=ahead)
        for error in ErrorCode
        for leader_id in (-1, 2, 3)
        for ahead in (0, -1)
    },
    **{failure.value: broken(failure) for failure in Failure},
}


@pytest.mark.parametrize("name", REPLICAS)
def test_no_answer_makes_a_replica_ask_like_mad(name: str) -> None:
    worst: Counter[str] = Counter()
    for said, answer in ANSWERS.items():
        counts = asked(REPLICAS[name](), answer, reads=True)
        for (destination, kind), count in counts.items():
            worst[f"{kind} to {destination} when told {said}"] = count

    (what, count), *_ = worst.most_common(1)
    assert count <= SECONDS * PER_PEER_AND_SECOND, what


def test_every_kind_of_request_is_tried() -> None:
    """A storm of what is never asked would not be seen."""
    kinds: set[str] = set()
    for make in REPLICAS.values():
        for said in (
            "NONE, leader -1, 0 ahead",
            "NONE, leader 2, 0 ahead",
            "NOT_LEADER_OR_FOLLOWER, leader 2, 0 ahead",
        ):
            kinds |= {kind for _, kind in asked(make(), ANSWERS[said], reads=True, seconds=LONGER)}

    # Of the rest, the first two need a snapshot, the others a dynamic quorum: see their own tests.
    missing = {kind.__name__ for kind in RESPONSES} - kinds
    assert missing <= {
        "FetchSnapshotRequest",
        "SnapshotHashRequest",
        "ApiVersionsRequest",
        "DescribeQuorumRequest",
        "AddRaftVoterRequest",
        "RemoveRaftVoterRequest",
        "UpdateRaftVoterRequest",
    }, missing


def test_peers_do_not_march_in_step() -> None:
    """The pause has chance in it."""
    pauses = {attrs.evolve(follower(1, 1).state.config).retry_backoff_ms}
    core = follower(1, 1)
    pauses |= {core.state.jittered_backoff_ms() for _ in range(100)}
    assert len(pauses) > 10
    assert min(pauses) >= 20
    assert max(pauses) < 40
