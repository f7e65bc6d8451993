"""The access to a machine in memory: what every other access does, too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from kraftlib.coordination.access import AtLeast, Change
from kraftlib.coordination.commands import decode, encode, encode_command
from kraftlib.coordination.history import CHANGES_MAX
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.memory_access import MemoryAccess
from kraftlib.coordination.messages import (
    Answer,
    Ask,
    Do,
    Expire,
    OpenSession,
    Question,
    Result,
    Selector,
    Transact,
    Watched,
)
from kraftlib.errors import ClosedError, ConfigError, RefusedError
from tests.coordination.driver import A

KEYS = encode(Selector(watched=Watched.PREFIX))


def put(key: str, number: int, *, count: int = 1) -> bytes:
    operations = tuple(Transact.Operation(do=Do.PUT, key=key, value=b"%d" % n) for n in range(count))
    return encode_command(Transact(then=operations), session=A, opened=0, sequence=number, acknowledged=number)


async def opened(access: MemoryAccess, *, ttl_ms: int = 60_000) -> MemoryAccess:
    await access.call(encode_command(OpenSession(ttl_ms=ttl_ms), session=A), timeout_ms=1_000)
    return access


async def test_a_write_tells_its_offset_and_is_read_at_it() -> None:
    async with MemoryAccess() as access:
        await opened(access)
        done = await access.call(put("k", 1), timeout_ms=1_000)
        assert decode(Result, done.result).offset == done.offset == 1
        question = encode(Question(ask=Ask.KEYS, name="k"))
        offset, answer = await access.query(question, consistency=AtLeast(done.offset), timeout_ms=1_000)
        assert offset == 1
        assert decode(Answer, answer).rows[0].value == b"0"
        with pytest.raises(TimeoutError, match="offset 2"):
            await access.query(question, consistency=AtLeast(2), timeout_ms=1)


async def test_what_a_client_must_not_propose_is_refused_and_nothing_is_appended() -> None:
    async with MemoryAccess() as access:
        with pytest.raises(RefusedError, match="only the leader"):
            await access.call(encode_command(Expire()), timeout_ms=1_000)
        with pytest.raises(ConfigError):
            await access.query(b"?", timeout_ms=1_000)
        with pytest.raises(ConfigError):
            await anext(access.watch(b"?", None))
        assert access.machine.applied == -1


async def test_a_watch_delivers_what_comes_after_its_offset_once_and_in_order() -> None:
    async with MemoryAccess() as access:
        await opened(access)
        for number in range(1, 601):
            await access.call(put("k", number), timeout_ms=1_000)
        seen: list[Change] = []

        async def read() -> None:
            async for change in access.watch(KEYS, 2):
                seen.append(change)
                if change.offset == 650:
                    return

        reading = asyncio.create_task(read())
        for number in range(601, 651):
            await access.call(put("k", number), timeout_ms=1_000)
        await asyncio.wait_for(reading, 10)
        assert [change.offset for change in seen] == list(range(3, 651))
        assert not any(change.full for change in seen)


async def test_a_watch_whose_history_is_gone_begins_with_a_full_state() -> None:
    async with MemoryAccess() as access:
        await opened(access)
        for number in range(1, CHANGES_MAX // 250 + 2):
            await access.call(put("k", number, count=250), timeout_ms=1_000)
        watch = access.watch(KEYS, 1)
        first = await anext(watch)
        assert (first.full, first.offset) == (True, access.machine.applied)
        assert [row.value for row in decode(Answer, first.data).rows] == [b"249"]
        await access.call(put("next", 1_000), timeout_ms=1_000)
        assert (await anext(watch)).offset == first.offset + 1


async def test_what_is_not_renewed_expires() -> None:
    now = 0
    async with MemoryAccess(clock_ms=lambda: now) as access:
        await opened(access, ttl_ms=1_000)
        access.expire()
        for now in (500, 1_000):  # noqa: B007 - the clock reads it
            access.expire()
        done = await access.call(put("k", 1), timeout_ms=1_000)
        assert decode(Result, done.result).status != 0


async def test_the_error_of_a_machine_that_cannot_say_what_is_over_is_met_by_all() -> None:
    class Broken(ServiceMachine):
        def due(self, epoch: int, now_ms: int) -> Sequence[bytes]:
            raise ZeroDivisionError

    async with asyncio.timeout(10), MemoryAccess(Broken()) as access:
        with pytest.raises(ZeroDivisionError):
            await anext(access.watch(KEYS, None))
        with pytest.raises(ZeroDivisionError):
            await access.call(put("k", 1), timeout_ms=1_000)
        with pytest.raises(ZeroDivisionError):
            await access.query(encode(Question(ask=Ask.KEYS)), timeout_ms=1_000)


async def test_a_closed_access_ends_its_watches_and_says_so() -> None:
    async with MemoryAccess() as access:
        watch = access.watch(KEYS, None)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        await waiting
    with contextlib.suppress(StopAsyncIteration), pytest.raises(ClosedError):
        await access.call(put("k", 1), timeout_ms=1_000)
