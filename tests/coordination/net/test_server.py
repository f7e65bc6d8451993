"""What a replica answers to a client, over the bytes of a connection: another language would send the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kraftlib.coordination.access import BEFORE_ALL
from kraftlib.coordination.net import server
from kraftlib.coordination.net.connection import Connection, LostError, connected_to
from kraftlib.coordination.net.server import WAIT_MAX_MS
from kraftlib.errors import LocalProtocolError, RemoteProtocolError
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import QUESTION_BYTES
from kraftlib.wire.frames import decode_request, encode_request
from kraftlib.wire.messages.call import CallRequest, CallResponse
from kraftlib.wire.messages.query import QueryRequest, QueryResponse
from kraftlib.wire.messages.watch import FROM_NOW, WatchRequest, WatchResponse
from tests.coordination.net.ways import EVERYTHING, Caller, Replicas, question, replicas


@asynccontextmanager
async def connection(quorum: Replicas) -> AsyncIterator[Connection]:
    made = await connected_to(quorum.endpoint(1), tls=None, sasl=None, timeout_s=20)
    try:
        yield made
    finally:
        await made.close()


async def watch(made: Connection, *watches: tuple[bytes, int], wait_ms: int = WAIT_MAX_MS, most: int = 1_000_000):
    rows = tuple(WatchRequest.Watch(selector=selector, since=since) for selector, since in watches)
    request = WatchRequest(max_wait_ms=wait_ms, max_bytes=most, watches=rows)
    return await made.ask(request, WatchResponse, silence_s=60)


async def test_a_watch_that_waits_is_answered_by_a_change_and_by_the_next_request() -> None:
    async with replicas(1) as quorum, connection(quorum) as made:
        caller = await Caller(quorum.running[1]).begin()
        now = (await watch(made, (EVERYTHING, FROM_NOW))).found[0].next_since
        waiting = asyncio.create_task(watch(made, (EVERYTHING, now)))
        done = await caller.put("key", b"")
        (found,) = (await waiting).found
        assert [change.offset for change in found.changes] == [done.offset]
        assert found.next_since == done.offset

        waiting = asyncio.create_task(watch(made, (EVERYTHING, done.offset)))
        await asyncio.sleep(0)
        answer = await made.ask(QueryRequest(timeout_ms=20_000, question=question("key")), QueryResponse, silence_s=20)
        assert (answer.error_code, answer.offset) == (ErrorCode.NONE, done.offset)
        assert (await waiting).found[0].changes == ()


async def test_an_answer_is_bounded_and_goes_on_where_it_ended() -> None:
    async with replicas(1) as quorum, connection(quorum) as made:
        caller = await Caller(quorum.running[1]).begin()
        offsets = [(await caller.put("key", b"x" * 1_000)).offset for _ in range(20)]
        since, found = BEFORE_ALL, []
        while len(found) < 20:
            (part,) = (await watch(made, (EVERYTHING, since), most=3_000)).found
            assert 1 <= len(part.changes) <= 3
            found += [change.offset for change in part.changes]
            since = part.next_since
        assert found == offsets
        first, second = (await watch(made, (EVERYTHING, BEFORE_ALL), (EVERYTHING, BEFORE_ALL), most=1)).found
        assert len(first.changes) == 1
        assert (second.changes, second.next_since) == ((), BEFORE_ALL), "what did not fit has not moved on"


@pytest.mark.parametrize(
    ("request_", "code", "reason"),
    [
        (CallRequest(timeout_ms=5_000, command=b"garbage"), ErrorCode.INVALID_REQUEST, "this is no command"),
        (QueryRequest(timeout_ms=5_000, question=b"garbage"), ErrorCode.INVALID_REQUEST, "this is no question"),
        (QueryRequest(timeout_ms=5_000, consistency=3), ErrorCode.INVALID_REQUEST, "consistency=3 must be 0, 1 or 2"),
        (
            QueryRequest(timeout_ms=1, consistency=1, offset=10**9),
            ErrorCode.REQUEST_TIMED_OUT,
            "was not reached here within 1 ms",
        ),
        (QueryRequest(timeout_ms=-5, consistency=1, offset=10**9), ErrorCode.REQUEST_TIMED_OUT, "within 0 ms"),
    ],
)
async def test_a_refusal_has_a_code_and_a_text(request_: CallRequest | QueryRequest, code: int, reason: str) -> None:
    async with replicas(1) as quorum, connection(quorum) as made:
        await quorum.leader()
        kind = CallResponse if isinstance(request_, CallRequest) else QueryResponse
        answer = await made.ask(request_, kind, silence_s=20)
        assert answer.error_code == code
        assert reason in (answer.error_message or "")


def late(size: int) -> QueryRequest:
    """Return a question that waits for a record that nobody writes."""
    return QueryRequest(timeout_ms=WAIT_MAX_MS, consistency=1, offset=2**60, question=bytes(size))


async def test_requests_that_wait_have_one_budget_and_go_with_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WAITING_MAX_BYTES", 20 * QUESTION_BYTES)
    async with replicas(1) as quorum, connection(quorum) as other, asyncio.timeout(20):
        await quorum.leader()
        full = QueryRequest(timeout_ms=1, question=question("key"))

        async def code() -> int:
            return (await other.ask(full, QueryResponse, silence_s=20)).error_code

        async with connection(quorum) as greedy:
            asked = [
                asyncio.create_task(greedy.ask(late(QUESTION_BYTES), QueryResponse, silence_s=60)) for _ in range(30)
            ]
            while await code() != ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                pass
        while await code() == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            pass
        assert all(isinstance(each, LostError) for each in await asyncio.gather(*asked, return_exceptions=True))


async def test_a_question_has_64_kib_at_most() -> None:
    selector = WatchRequest.Watch(selector=bytes(QUESTION_BYTES + 1), since=0)
    async with replicas(1) as quorum:
        await quorum.leader()
        for request in (late(QUESTION_BYTES + 1), WatchRequest(max_wait_ms=0, watches=(selector,))):
            async with connection(quorum) as made:
                with pytest.raises(LocalProtocolError, match="65537 bytes, where 65536 are allowed"):
                    await made.ask(request, QueryResponse, silence_s=20)
        small = encode_request(late(QUESTION_BYTES), version=0, correlation_id=1, client_id="c")
        large = small.replace(b"\x81\x80\x04" + bytes(9), b"\x82\x80\x04" + bytes(10))  # its length and one byte more
        assert decode_request(small).message.question == bytes(QUESTION_BYTES)
        with pytest.raises(RemoteProtocolError, match="65537 bytes before byte"):
            decode_request(large)
