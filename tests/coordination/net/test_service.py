"""Expiry: the leader ends sessions that are not renewed, and a new leader grants each its full time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlib.coordination.access import BEFORE_ALL
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.messages import Do, Transact
from kraftlib.coordination.net.client import connect
from kraftlib.coordination.net.service import Pull, Service
from kraftlib.coordination.net.turns import TURN_S
from tests.coordination.net.test_watching import rows
from tests.coordination.net.ways import EVERYTHING, Caller, replicas, value
from tests.runtime.quorum import PATIENCE_S


async def test_a_session_that_is_not_renewed_loses_its_ephemeral_keys_through_a_change_of_leader() -> None:
    async with replicas() as quorum, connect(quorum.servers) as access:
        lasting, leaving = await Caller(access).begin(), await Caller(access).begin(ttl_ms=1_500)
        key = Transact.Operation(do=Do.PUT, key="mine", value=b"x", ephemeral=True)
        await leaving.transact(Transact(then=(key,)))
        await quorum.change_leader(kill=True)
        assert await value(access, "mine") == b"x", "a new leader grants it the full time"

        deleted = asyncio.Event()

        async def watch() -> None:
            async for change in access.watch(EVERYTHING, BEFORE_ALL):
                if [name for name, _ in rows(change)] == ["mine"] and await value(access, "mine") is None:
                    deleted.set()

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(20):
            await deleted.wait()
        watching.cancel()
        await lasting.add("sum")


class Slips(ServiceMachine):
    """A machine that cannot say at first what is over."""

    asked = 0

    def due(self, epoch: int, now_ms: int) -> Sequence[bytes]:
        self.asked += 1
        if 2 <= self.asked <= 4:
            raise KeyError("a slip")
        return super().due(epoch, now_ms)


async def test_a_machine_that_fails_to_say_what_is_over_is_asked_again_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No session would end any more while this replica leads, and nobody would know why."""
    machine = Slips()
    async with replicas(1, machine=lambda node_id: machine) as quorum:
        access = quorum.running[1]
        caller = await Caller(access).begin(ttl_ms=100)
        key = Transact.Operation(do=Do.PUT, key="mine", value=b"x", ephemeral=True)
        await caller.transact(Transact(then=(key,)))
        async with asyncio.timeout(PATIENCE_S):
            while await value(access, "mine") is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    told = [record.message for record in caplog.records if "a slip" in record.message]
    assert told == ["the machine fails to say what has expired: KeyError('a slip')"]


class Loading:
    """An applier that loads a snapshot until `ends`. A look at it spends a turn."""

    def __init__(self) -> None:
        self.loads = True

    @property
    def is_loading(self) -> bool:
        time.sleep(TURN_S * 2)
        return self.loads

    def ends(self) -> None:
        self.loads = False

    applied_offset = 11


class Restored:
    """A machine whose restore has told its offset already, on another thread."""

    applied = 10

    def changes(self, selector: bytes, since: int, most: int) -> Sequence[tuple[int, bytes]]:
        return [(9, b"news")] if selector == b"first" and since < 9 else []


async def test_a_watch_looks_again_when_a_load_ends_between_the_looks_of_one_pull() -> None:
    """The first look saw a load and the second did not: nothing would look for the first before the next record."""
    applier, loop = Loading(), asyncio.get_running_loop()
    node: Any = SimpleNamespace(
        applier=applier,
        appends=SimpleNamespace(epoch=-1),
        engine_first=SimpleNamespace(future=loop.create_future),
        ensure_applying=lambda: None,
        wait_for_offset=lambda *_: None,
    )
    machine: Any = Restored()
    service = Service(node, machine)
    loop.call_soon(applier.ends)
    pulls = [Pull(b"first", 5), Pull(b"second", 5)]
    try:
        async with asyncio.timeout(5):
            pulled = await service.pull(pulls, max_wait_ms=60_000, max_bytes=1_000, interrupted=loop.create_future())
    finally:
        service.end()
    assert [change.data for change in pulled[0].changes] == [b"news"]


async def test_a_watch_from_now_is_answered_in_time_where_what_is_committed_is_not_applied() -> None:
    """A state machine that loads for minutes held up the answer, and the client took its connection for a dead one."""
    loop = asyncio.get_running_loop()
    node: Any = SimpleNamespace(
        appends=SimpleNamespace(epoch=-1),
        engine_first=SimpleNamespace(future=loop.create_future),
        read_barrier=lambda *_: None,
        withdraw=lambda _: None,
    )
    machine: Any = Restored()
    service = Service(node, machine)
    pull = service.pull([Pull(b"first", None)], max_wait_ms=10, max_bytes=1_000, interrupted=loop.create_future())
    pulling = asyncio.ensure_future(pull)
    try:
        await asyncio.wait((pulling,), timeout=PATIENCE_S)
        assert pulling.done()
        with pytest.raises(TimeoutError):
            await pulling
    finally:
        service.end()
