"""Forwarded appends that share a request: who goes with whom, and what each caller is told of the one answer."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import ConfigError, NotLeaderError, OutcomeUnknownError, RecordTooLargeError, ReplicaFailedError
from kraftlib.proposals.forwarding import Proposals
from kraftlib.proposals.groups import Forwarded, packed
from kraftlib.proposals.ports import Proposed, UnansweredError
from kraftlib.records.serde import JsonSerde
from kraftlib.types import Endpoint, LeaderAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import PROPOSED_BYTES, PROPOSED_VALUES
from kraftlib.wire.messages.propose import ProposeRequest, ProposeResponse
from tests.runtime.quorum import until

COMMITTED, APPLIED = 2, 3


class Follower:
    """A replica that follows. The test answers what it has asked."""

    node_id = 1
    cluster_id = "test"
    has_ended = False

    def __init__(self) -> None:
        self.asked: list[ProposeRequest] = []
        self.asking: list[asyncio.Future[Any]] = []
        self.applying: list[tuple[int, asyncio.Future[Any]]] = []
        self.leader_id: int | None = 2
        self.proposals = Proposals(self, serde=JsonSerde())

    def leader(self) -> tuple[LeaderAndEpoch, Endpoint | None]:
        return LeaderAndEpoch(self.leader_id, 5), Endpoint("replica", 2)

    def follows(self, level: int) -> bool:
        return True

    def not_leader(self) -> NotLeaderError:
        return NotLeaderError("replica 1 follows, nothing was appended", leader=LeaderAndEpoch(2, 5))

    def append(self, values: Any, level: int) -> asyncio.Future[Any]:
        raise AssertionError("it follows")

    def ask(self, leader_id: int, endpoint: Endpoint, request: Any) -> asyncio.Future[Any]:
        self.asked.append(request)
        self.asking.append(asyncio.get_running_loop().create_future())
        return self.asking[-1]

    def applied(self, offset: int, epoch: int) -> asyncio.Future[Any]:
        self.applying.append((offset, asyncio.get_running_loop().create_future()))
        return self.applying[-1][1]

    def propose(self, *values: bytes, level: int = COMMITTED, **more: Any) -> asyncio.Task[Proposed]:
        timeout_ms = more.pop("timeout_ms", 20_000)
        return asyncio.create_task(self.proposals.propose(values, level=level, timeout_ms=timeout_ms, **more))

    async def sent(self, count: int) -> Sequence[tuple[bytes, ...]]:
        """Wait until so many requests have left, and return the values of each."""
        await until(lambda: len(self.asked) >= count)
        return [request.values for request in self.asked]


def done(base_offset: int, count: int, *results: bytes) -> ProposeResponse:
    return ProposeResponse(base_offset=base_offset, last_offset=base_offset + count - 1, epoch=5, results=results)


def refused(code: ErrorCode, text: str = "it is wrong") -> ProposeResponse:
    return ProposeResponse(error_code=code, error_message=text)


async def test_appends_of_one_turn_are_one_request_and_each_has_its_own_offsets() -> None:
    follower = Follower()
    proposing = [follower.propose(b"a"), follower.propose(b"b", b"c"), follower.propose(b"d")]
    assert await follower.sent(1) == [(b"a", b"b", b"c", b"d")]
    follower.asking[0].set_result(done(10, 4))
    assert await asyncio.gather(*proposing) == [(10, 10, 5, ()), (11, 12, 5, ()), (13, 13, 5, ())]


async def test_appends_of_another_turn_do_not_wait_for_the_first_answer() -> None:
    follower = Follower()
    first = follower.propose(b"a")
    await follower.sent(1)
    second = follower.propose(b"b")
    assert await follower.sent(2) == [(b"a",), (b"b",)]
    follower.asking[1].set_result(done(11, 1))
    assert (await second).base_offset == 11
    assert not first.done()
    first.cancel()


async def test_each_caller_has_its_own_results_once_they_are_applied_here() -> None:
    follower = Follower()
    proposing = [follower.propose(value, level=APPLIED, repeatable=True) for value in (b"a", b"b")]
    await follower.sent(1)
    follower.asking[0].set_result(done(10, 2, b"\x01one", b"\x01two"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ((offset, applying),) = follower.applying
    assert offset == 11  # one wait for the whole group
    assert not any(task.done() for task in proposing)
    applying.set_result(12)
    assert [proposed.results for proposed in await asyncio.gather(*proposing)] == [(b"one",), (b"two",)]


async def test_each_caller_has_its_own_deadline_and_the_leader_the_last_of_them() -> None:
    follower = Follower()
    short, long = follower.propose(b"a", timeout_ms=10), follower.propose(b"b", timeout_ms=20_000)
    await follower.sent(1)
    assert 10_000 < follower.asked[0].timeout_ms <= 20_000
    with pytest.raises(OutcomeUnknownError, match="not known after 10 ms"):
        await short
    follower.asking[0].set_result(done(10, 2))
    assert (await long).base_offset == 11


async def test_a_caller_that_leaves_before_the_end_of_the_turn_is_not_proposed() -> None:
    follower = Follower()
    gone, stays = follower.propose(b"a"), follower.propose(b"b")
    asyncio.get_running_loop().call_soon(gone.cancel)
    assert await follower.sent(1) == [(b"b",)]
    follower.asking[0].set_result(done(10, 1))
    assert (await stays).base_offset == 10
    with pytest.raises(asyncio.CancelledError):
        await gone


@pytest.mark.parametrize(
    ("code", "error"), [(ErrorCode.INVALID_REQUEST, ConfigError), (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLargeError)]
)
async def test_what_one_value_is_refused_for_is_not_told_to_the_others(code: ErrorCode, error: type[Exception]) -> None:
    follower = Follower()
    proposing = [follower.propose(value) for value in (b"a", b"wrong", b"c", b"d")]
    answered = 0
    while not all(task.done() for task in proposing):
        await follower.sent(answered + 1)
        values = follower.asked[answered].values
        answer = refused(code) if b"wrong" in values else done(10 * answered, len(values))
        follower.asking[answered].set_result(answer)
        answered += 1
        for _ in range(6):
            await asyncio.sleep(0)
    outcomes = await asyncio.gather(*proposing, return_exceptions=True)
    assert isinstance(outcomes[1], error)
    assert [type(outcome) for outcome in outcomes] == [Proposed, error, Proposed, Proposed]
    assert [request.values for request in follower.asked] == [
        (b"a", b"wrong", b"c", b"d"),
        (b"a", b"wrong"),
        (b"c", b"d"),
        (b"a",),
        (b"wrong",),
    ]


async def test_a_caller_that_has_gone_is_left_out_of_the_halves() -> None:
    follower = Follower()
    proposing = [follower.propose(value) for value in (b"a", b"wrong")]
    await follower.sent(1)
    proposing[1].cancel()
    await asyncio.sleep(0)
    follower.asking[0].set_result(refused(ErrorCode.INVALID_REQUEST))
    assert await follower.sent(2) == [(b"a", b"wrong"), (b"a",)]
    follower.asking[1].set_result(done(10, 1))
    assert (await proposing[0]).base_offset == 10


async def test_halves_that_find_no_leader_are_certainly_not_appended() -> None:
    follower = Follower()
    proposing = [follower.propose(value, timeout_ms=100) for value in (b"a", b"b")]
    await follower.sent(1)
    follower.leader_id = None
    follower.asking[0].set_result(refused(ErrorCode.INVALID_REQUEST))
    for task in proposing:
        with pytest.raises(NotLeaderError, match="nothing was appended"):
            await task


async def test_an_append_without_values_is_told_so_and_not_swallowed() -> None:
    follower = Follower()
    nothing, one = follower.propose(), follower.propose(b"a")
    assert await follower.sent(2) == [(), (b"a",)]
    follower.asking[0].set_result(refused(ErrorCode.INVALID_REQUEST, "no values"))
    follower.asking[1].set_result(done(10, 1))
    with pytest.raises(ConfigError, match="no values"):
        await nothing
    assert (await one).base_offset == 10


async def test_a_result_without_room_beside_the_others_is_asked_for_alone() -> None:
    follower = Follower()
    small, large = (follower.propose(value, level=APPLIED, repeatable=True) for value in (b"small", b"large"))
    await follower.sent(1)
    follower.asking[0].set_result(done(10, 2, b"\x01small", b"\x03it exceeds the room for all results"))
    for _ in range(3):
        await asyncio.sleep(0)
    follower.applying[0][1].set_result(12)
    assert (await small).results == (b"small",)
    assert await follower.sent(2) == [(b"small", b"large"), (b"large",)]
    follower.asking[1].set_result(done(12, 1, b"\x01large"))
    for _ in range(3):
        await asyncio.sleep(0)
    follower.applying[1][1].set_result(13)
    assert (await large).results == (b"large",)


@pytest.mark.parametrize(
    "answer",
    [refused(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full"), UnansweredError("gone", may_have_arrived=False)],
    ids=["refused", "unsent"],
)
async def test_a_committed_value_whose_result_is_asked_for_again_is_never_said_to_be_refused(answer: Any) -> None:
    follower = Follower()
    small, large = (
        follower.propose(value, level=APPLIED, repeatable=True, timeout_ms=300) for value in (b"small", b"large")
    )
    await follower.sent(1)
    follower.asking[0].set_result(done(10, 2, b"\x01small", b"\x03it exceeds the room for all results"))
    await until(lambda: bool(follower.applying))
    follower.applying[0][1].set_result(12)
    await small
    await follower.sent(2)
    follower.leader_id = None
    if isinstance(answer, Exception):
        follower.asking[1].set_exception(answer)
    else:
        follower.asking[1].set_result(answer)
    with pytest.raises(OutcomeUnknownError) as unknown:
        await large
    assert (unknown.value.base_offset, unknown.value.epoch) == (11, 5)


async def test_a_group_whose_callers_have_gone_waits_for_nothing() -> None:
    follower = Follower()
    proposing = [follower.propose(value, level=APPLIED) for value in (b"a", b"b")]
    await follower.sent(2)
    follower.asking[0].set_result(done(10, 1, b"\x01a"))
    follower.asking[1].set_result(done(11, 1, b"\x01b"))
    await until(lambda: len(follower.applying) == 2)
    for task in proposing:
        task.cancel()
    await until(lambda: all(applying.cancelled() for _, applying in follower.applying))


async def test_a_caller_with_no_end_of_patience_spoils_no_request_of_others() -> None:
    follower = Follower()
    proposing = [follower.propose(b"a", timeout_ms=3_000_000_000), follower.propose(b"b")]
    await follower.sent(1)
    assert follower.asked[0].timeout_ms == 2**31 - 1
    follower.asking[0].set_result(done(10, 2))
    assert [proposed.base_offset for proposed in await asyncio.gather(*proposing)] == [10, 11]


async def test_an_empty_value_is_refused_here_and_reorders_no_others() -> None:
    follower = Follower()
    first, empty, last = (follower.propose(value) for value in (b"a", b"", b"c"))
    assert await follower.sent(1) == [(b"a", b"c")]
    with pytest.raises(ConfigError, match="must not be empty"):
        await empty
    follower.asking[0].set_result(done(10, 2))
    assert [(await task).base_offset for task in (first, last)] == [10, 11]


async def test_an_append_in_doubt_knows_where_its_own_values_may_stand() -> None:
    follower = Follower()
    proposing = [follower.propose(value) for value in (b"a", b"b")]
    await follower.sent(1)
    written = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    follower.asking[0].set_result(ProposeResponse(error_code=written, base_offset=10, epoch=5))
    for offset, task in enumerate(proposing, start=10):
        with pytest.raises(OutcomeUnknownError) as unknown:
            await task
        assert (unknown.value.base_offset, unknown.value.epoch) == (offset, 5)


@pytest.mark.parametrize("answer", [done(10, 3), done(10, 2, b"\x00")], ids=["three values", "one result"])
async def test_an_answer_to_something_else_leaves_all_in_doubt(answer: ProposeResponse) -> None:
    follower = Follower()
    proposing = [follower.propose(value) for value in (b"a", b"b")]
    await follower.sent(1)
    follower.asking[0].set_result(answer)
    for task in proposing:
        with pytest.raises(OutcomeUnknownError, match="to something else"):
            await task


async def test_no_error_object_is_shared_by_the_callers_of_a_group() -> None:
    follower = Follower()
    proposing = [follower.propose(value, level=APPLIED, repeatable=True) for value in (b"a", b"b")]
    await follower.sent(1)
    follower.asking[0].set_result(done(10, 2, b"\x00", b"\x00"))
    for _ in range(3):
        await asyncio.sleep(0)
    follower.applying[0][1].set_exception(ReplicaFailedError("its state machine has failed"))
    errors = await asyncio.gather(*proposing, return_exceptions=True)
    assert [(type(error), getattr(error, "base_offset", None)) for error in errors] == [
        (OutcomeUnknownError, 10),
        (OutcomeUnknownError, 11),
    ]
    assert errors[0] is not errors[1]


async def test_where_another_leader_becomes_known_only_what_has_an_identity_is_sent_again() -> None:
    follower = Follower()
    repeatable, single = follower.propose(b"a", repeatable=True), follower.propose(b"b")
    await follower.sent(1)
    follower.proposals.leader_known()
    assert await follower.sent(2) == [(b"a", b"b"), (b"a",)]
    follower.asking[1].set_result(done(20, 1))
    assert (await repeatable).base_offset == 20
    follower.asking[0].set_exception(UnansweredError("disconnected", may_have_arrived=True))
    with pytest.raises(OutcomeUnknownError, match="disconnected"):
        await single


async def test_a_forwarded_append_leaves_no_garbage_for_the_collector() -> None:
    follower = Follower()

    async def propose_some() -> None:
        before = len(follower.asked)
        proposing = [follower.propose(b"a", level=APPLIED, repeatable=True) for _ in range(20)]
        await follower.sent(before + 1)
        follower.asking[-1].set_result(done(10, 20, *[b"\x00"] * 20))
        for _ in range(3):
            await asyncio.sleep(0)
        follower.applying[-1][1].set_result(30)
        for task in proposing:
            await task

    await propose_some()
    gc.collect()
    gc.disable()
    try:
        await propose_some()
        assert gc.collect() == 0
    finally:
        gc.enable()


sizes = st.sampled_from([0, 1, 100, PROPOSED_BYTES // 2, PROPOSED_BYTES])
counts = st.sampled_from([0, 1, 3, PROPOSED_VALUES // 2, PROPOSED_VALUES])


@st.composite
def appends(draw: st.DrawFn) -> Forwarded:
    count = draw(counts)
    values = [bytes(draw(sizes))] if count == 1 else [b"x"] * count
    return Forwarded(values, draw(st.sampled_from([COMMITTED, APPLIED])), 0.0, draw(st.booleans()), None)  # type: ignore[arg-type]


@given(st.lists(appends(), max_size=20))
def test_groups_keep_the_order_fit_into_a_request_and_have_one_level(given_appends: list[Forwarded]) -> None:
    groups = list(packed(given_appends))
    assert [append for group in groups for append in group] == given_appends
    for group in groups:
        values = [value for append in group for value in append.values]
        assert len({append.level for append in group}) == 1
        assert len(values) <= PROPOSED_VALUES
        assert sum(map(len, values)) <= PROPOSED_BYTES
        if len(group) > 1:
            assert all(append.values for append in group)
            assert all(append.repeatable or append.level != APPLIED for append in group)


@given(st.lists(appends(), max_size=20))
def test_no_two_neighbours_stand_apart_that_fit_together(given_appends: list[Forwarded]) -> None:
    groups = list(packed(given_appends))
    for one, other in itertools.pairwise(groups):
        together = [value for append in (*one, other[0]) for value in append.values]
        fits = len(together) <= PROPOSED_VALUES and sum(map(len, together)) <= PROPOSED_BYTES
        alike = one[-1].level == other[0].level and one[-1].can_be_grouped and other[0].can_be_grouped
        assert not (fits and alike)
