"""The leader's side of Propose, over the bytes that a replica sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlib.errors import NotLeaderError, OutcomeUnknownError, ReplicaFailedError
from kraftlib.proposals.taking import ProposalServer
from kraftlib.records.serde import JsonSerde
from kraftlib.types import Endpoint, LeaderAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.propose import ProposeRequest, ProposeResponse


class Leader:
    """A replica whose appends end as a test says."""

    node_id = 2
    cluster_id = "test"

    def __init__(self) -> None:
        self.appended: list[tuple[Any, int]] = []
        self.refusal: Exception | None = None
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answers: list[Any] = []
        self.answered = asyncio.Event()

    def leader(self) -> tuple[LeaderAndEpoch, Endpoint | None]:
        return LeaderAndEpoch(3, 7), Endpoint("third", 9093)

    def follows(self, level: int) -> bool:
        return isinstance(self.refusal, NotLeaderError)

    def not_leader(self) -> NotLeaderError:
        assert isinstance(self.refusal, NotLeaderError)
        return self.refusal

    def append(self, values: Any, level: int) -> asyncio.Future[Any]:
        if self.refusal is not None:
            raise self.refusal
        self.appended.append((values, level))
        return self.future

    def ask(self, leader_id: int, endpoint: Endpoint, request: Any) -> asyncio.Future[Any]:
        raise NotImplementedError

    def applied(self, offset: int, epoch: int) -> asyncio.Future[Any]:
        raise NotImplementedError

    def respond(self, request_id: int, response: Any) -> None:
        self.answers.append((request_id, response))
        self.answered.set()

    def take(self, request: ProposeRequest, *, has_machine: bool = True, timeout_max_ms: int = 20_000) -> None:
        server = ProposalServer(
            self, respond=self.respond, serde=JsonSerde(), has_machine=has_machine, timeout_max_ms=timeout_max_ms
        )
        server.take(5, request, None)


async def test_the_answer_comes_with_the_outcome_and_not_before() -> None:
    leader = Leader()
    leader.take(ProposeRequest(cluster_id="test", timeout_ms=20_000, level=3, values=(b"a", b"b")))
    assert (leader.appended, leader.answers) == ([((b"a", b"b"), 3)], [])

    leader.future.set_result((10, 11, 7, ("one", None)))
    await leader.answered.wait()
    done = ProposeResponse(base_offset=10, last_offset=11, epoch=7, results=(b'\x02"one"', b"\x00"))
    assert leader.answers == [(5, done)]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotLeaderError("I follow", leader=LeaderAndEpoch(3, 7)), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ReplicaFailedError("my disk failed"), ErrorCode.BROKER_NOT_AVAILABLE),
    ],
)
async def test_a_refusal_says_that_nothing_was_appended_and_who_leads(error: Exception, code: int) -> None:
    leader = Leader()
    leader.refusal = error
    leader.take(ProposeRequest(timeout_ms=20_000, values=(b"a",)))
    named = ProposeResponse.LeaderIdAndEpoch(leader_id=3, leader_epoch=7, host="third", port=9093)
    assert leader.answers == [(5, ProposeResponse(error_code=code, error_message=str(error), current_leader=named))]


@pytest.mark.parametrize(
    "error", [OutcomeUnknownError("lost the leadership", base_offset=10, epoch=7), ReplicaFailedError("my disk failed")]
)
async def test_after_the_values_were_taken_an_error_leaves_the_outcome_open(error: Exception) -> None:
    leader = Leader()
    leader.take(ProposeRequest(timeout_ms=20_000, values=(b"a",)))
    leader.future.set_exception(error)
    await leader.answered.wait()
    answer = leader.answers[0][1]
    assert answer.error_code in (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert (answer.base_offset, answer.epoch) == (getattr(error, "base_offset", -1), getattr(error, "epoch", -1))


@pytest.mark.parametrize(("asked_ms", "most_ms"), [(1, 20_000), (2**31 - 1, 1), (-5, 20_000)])
async def test_no_answer_takes_longer_than_the_sender_and_this_replica_wait(asked_ms: int, most_ms: int) -> None:
    leader = Leader()
    leader.take(ProposeRequest(timeout_ms=asked_ms, values=(b"a",)), timeout_max_ms=most_ms)
    async with asyncio.timeout(20):
        await leader.answered.wait()
    assert leader.answers[0][1].error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ProposeRequest(cluster_id="other", values=(b"a",)), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (ProposeRequest(level=4, values=(b"a",)), ErrorCode.INVALID_REQUEST),
        (ProposeRequest(level=-1, values=(b"a",)), ErrorCode.INVALID_REQUEST),
        (ProposeRequest(level=3, values=(b"a",)), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_wrong_request_appends_nothing(request_: ProposeRequest, code: int) -> None:
    leader = Leader()
    leader.take(request_, has_machine=False)
    assert leader.appended == []
    assert leader.answers[0][1].error_code == code
