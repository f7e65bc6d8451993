"""Where the replica runs makes no difference to what it does, and the host may die without asking."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError
from kraftlib.runtime.client.engine import InlineEngine
from kraftlib.runtime.client.thread_engine import ThreadEngine
from kraftlib.runtime.committed import BatchReader
from kraftlib.runtime.listener import Listener
from tests.runtime.quorum import PATIENCE_S, TIMING, alone, quorum

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("engine", "elsewhere"), [("inline", False), ("thread", True)])
async def test_listeners_are_called_on_the_engines_thread(engine: str, elsewhere: bool) -> None:
    called_on: list[threading.Thread] = []

    class Noting(Listener):
        def handle_commit(self, reader: BatchReader) -> None:
            called_on.append(threading.current_thread())

    async with asyncio.timeout(PATIENCE_S), alone({"listener": Noting()}, engine=engine) as client:
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


async def test_callbacks_on_the_engines_thread_may_call_the_client() -> None:
    seen: list[str] = []

    class Asking(Listener):
        def handle_commit(self, reader: BatchReader) -> None:
            seen.append(client.status().role)

    async with asyncio.timeout(PATIENCE_S):
        client = alone({"listener": Asking()}, engine="thread")
        async with client:
            await client.wait_for_leader()
            await client.append_one(b"value", wait="applied")
    assert set(seen) == {"leader"}


@pytest.mark.parametrize("make", [InlineEngine, lambda make_node: ThreadEngine(make_node, RaftConfig(node_id=1))])
def test_an_engine_that_was_not_started_has_no_node(make: Any) -> None:
    with pytest.raises(ClosedError, match="not started"):
        _ = make(lambda post: None).node


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
