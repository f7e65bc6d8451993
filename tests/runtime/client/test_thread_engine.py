"""The engine's own thread takes the calls of the host, each once, and ends with the replica."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kraftlib.errors import ConfigError
from kraftlib.runtime.client import thread_engine as module
from kraftlib.runtime.client.thread_engine import ThreadEngine, loop_factory
from kraftlib.runtime.committed import BatchReader
from kraftlib.runtime.listener import Listener
from tests.runtime.quorum import PATIENCE_S, alone, until


async def test_what_one_turn_of_the_host_appends_goes_over_in_one_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(PATIENCE_S), alone(engine="thread") as client:
        await client.wait_for_leader()
        received: list[int] = []
        engine = client._engine
        assert isinstance(engine, ThreadEngine)
        receive = engine._receive

        def counting(outbox: Any) -> None:
            received.append(len(outbox))
            receive(outbox)

        monkeypatch.setattr(engine, "_receive", counting)
        await asyncio.gather(*(client.append_one(b"%d" % number) for number in range(100)))
        assert received == [100]


async def test_an_exception_of_a_call_comes_back_to_the_caller() -> None:
    async with asyncio.timeout(PATIENCE_S), alone(engine="thread") as client:
        with pytest.raises(ZeroDivisionError):
            client._engine.call(lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await client._engine.ask(lambda promise: 1 // 0)


async def test_a_call_that_was_given_up_is_not_done_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller was told that nothing was appended."""
    entered, let = threading.Event(), threading.Event()

    class Blocking(Listener):
        def handle_commit(self, reader: BatchReader) -> None:
            if any(b"block" in batch.values for batch in reader if not batch.is_control):
                entered.set()
                let.wait(PATIENCE_S)

    async with asyncio.timeout(PATIENCE_S), alone({"listener": Blocking()}, engine="thread") as client:
        epoch = (await client.wait_for_leader()).epoch
        blocked = await client.append_one(b"block")
        await until(entered.is_set)
        monkeypatch.setattr(module, "CALL_TIMEOUT_S", 0.01)
        with pytest.raises(TimeoutError, match="blocks it; nothing was done"):
            client.prepare_append(epoch, [b"given up"])
        monkeypatch.undo()
        let.set()
        client.schedule_prepared_append()
        assert (await client.append_one(b"next")).last_offset == blocked.last_offset + 1


async def test_no_thread_is_left_behind() -> None:
    async with asyncio.timeout(PATIENCE_S), alone(engine="thread") as client:
        await client.wait_for_leader()
        names = {thread.name for thread in threading.enumerate()}
        assert {"kraftlib-1", "kraftlib-disk-1"} <= names
    await until(lambda: not [t for t in threading.enumerate() if t.name.startswith("kraftlib")])


def test_the_loop_is_uvloops_where_it_is_installed_and_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loop_factory("asyncio") is None
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert loop_factory("auto") is None
    with pytest.raises(ConfigError, match="not installed"):
        loop_factory("uvloop")
