"""Where the replica runs makes no difference to what it does, and the host may die without asking."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ClosedError, ConfigError
from kraftlib.runtime.client import engine as engine_module
from kraftlib.runtime.client.engine import InlineEngine, ThreadEngine, loop_factory
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.listener import BatchReader, Listener
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.types import Endpoint
from tests.runtime.quorum import PATIENCE_S, TIMING, quorum, until

ROOT = Path(__file__).resolve().parents[3]


def alone(engine: str, **settings: Any) -> RaftClient[bytes]:
    config = RaftConfig(node_id=1, voters=(StaticVoter(1, Endpoint("replica", 1)),), engine=engine, **TIMING)
    return RaftClient(config, transport=MemoryTransport(MemoryHub(), Endpoint("replica", 1)), **settings)


@pytest.mark.parametrize(("engine", "elsewhere"), [("inline", False), ("thread", True)])
async def test_listeners_are_called_on_the_engines_thread(engine: str, elsewhere: bool) -> None:
    called_on: list[threading.Thread] = []

    class Noting(Listener):
        def handle_commit(self, reader: BatchReader) -> None:
            called_on.append(threading.current_thread())

    async with asyncio.timeout(PATIENCE_S), alone(engine, listener=Noting()) as client:
        await client.wait_for_leader()
        await client.append_one(b"value", wait="applied")
    assert all((thread is not threading.current_thread()) == elsewhere for thread in called_on)
    assert called_on


async def test_a_host_that_blocks_its_loop_keeps_its_leadership() -> None:
    """What the thread is for: nothing of the quorum waits for the host."""
    async with quorum(engine="thread") as three:
        leader = await three.leader()
        epoch = leader.leader_and_epoch().epoch
        threading.Event().wait(2.5 * TIMING["fetch_timeout_ms"] / 1_000)  # the host's loop does not turn
        assert {client.leader_and_epoch().epoch for client in three.clients.values()} == {epoch}
        assert (await leader.append_one(b"value")).epoch == epoch


async def test_what_one_turn_of_the_host_appends_goes_over_in_one_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(PATIENCE_S), alone("thread") as client:
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


async def test_callbacks_on_the_engines_thread_may_call_the_client() -> None:
    seen: list[str] = []

    class Asking(Listener):
        def handle_commit(self, reader: BatchReader) -> None:
            seen.append(client.status().role)

    async with asyncio.timeout(PATIENCE_S):
        client = alone("thread", listener=Asking())
        async with client:
            await client.wait_for_leader()
            await client.append_one(b"value", wait="applied")
    assert set(seen) == {"leader"}


async def test_an_exception_of_a_call_comes_back_to_the_caller() -> None:
    async with asyncio.timeout(PATIENCE_S), alone("thread") as client:
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

    async with asyncio.timeout(PATIENCE_S), alone("thread", listener=Blocking()) as client:
        epoch = (await client.wait_for_leader()).epoch
        blocked = await client.append_one(b"block")
        await until(entered.is_set)
        monkeypatch.setattr(engine_module, "CALL_TIMEOUT_S", 0.01)
        with pytest.raises(TimeoutError, match="blocks it; nothing was done"):
            client.prepare_append(epoch, [b"given up"])
        monkeypatch.undo()
        let.set()
        client.schedule_prepared_append()
        assert (await client.append_one(b"next")).last_offset == blocked.last_offset + 1


@pytest.mark.parametrize("make", [InlineEngine, lambda make_node: ThreadEngine(make_node, RaftConfig(node_id=1))])
def test_an_engine_that_was_not_started_has_no_node(make: Any) -> None:
    with pytest.raises(ClosedError, match="not started"):
        _ = make(lambda post: None).node


async def test_no_thread_is_left_behind() -> None:
    async with asyncio.timeout(PATIENCE_S), alone("thread") as client:
        await client.wait_for_leader()
        names = {thread.name for thread in threading.enumerate()}
        assert {"kraftlib-1", "kraftlib-disk-1"} <= names
    await until(lambda: not [t for t in threading.enumerate() if t.name.startswith("kraftlib")])


@pytest.mark.parametrize(
    "ending", ["return", "raise RuntimeError('the host fails')", "import os; os.kill(os.getpid(), 9)"]
)
def test_a_host_that_ends_without_closing_does_not_hang(ending: str) -> None:
    program = f"""
import asyncio
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.types import Endpoint

async def main():
    client = RaftClient(RaftConfig(node_id=1, voters=(StaticVoter(1, Endpoint("127.0.0.1", 1)),),
    listen=Endpoint("127.0.0.1", 0)),
                        transport=transport)
    await client.start()
    await client.wait_for_leader()
    await client.append_one(b"value")
    {ending}

from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
transport = MemoryTransport(MemoryHub(), Endpoint("127.0.0.1", 1))
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, timeout=PATIENCE_S, capture_output=True, check=False
    )
    assert done.returncode == {"return": 0, "raise": 1, "import": -9}[ending.split()[0]], done.stderr.decode()


def test_the_loop_is_uvloops_where_it_is_installed_and_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loop_factory("asyncio") is None
    monkeypatch.setattr(engine_module.importlib.util, "find_spec", lambda name: None)
    assert loop_factory("auto") is None
    with pytest.raises(ConfigError, match="not installed"):
        loop_factory("uvloop")
