"""A client serves the loop and the process that it was started in. Elsewhere it refuses, before anything is done."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlib.errors import ConfigError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import Listener, StateMachine
from tests.runtime.quorum import PATIENCE_S, alone

ROOT = Path(__file__).resolve().parents[3]

Call = Callable[[RaftClient[bytes]], Awaitable[object]]


class Counting(StateMachine):
    def __init__(self) -> None:
        self.applied: list[bytes] = []

    def apply(self, record: CommittedRecord) -> Any:
        self.applied.append(bytes(record.value))


async def prepare(client: RaftClient[bytes]) -> None:
    client.prepare_append(client.leader_and_epoch().epoch, [b"strange"])
    client.schedule_prepared_append()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.append_one(b"strange"),
        lambda client: client.append([b"strange"]),
        lambda client: client.propose(b"strange"),
        lambda client: client.read_barrier(),
        lambda client: client.wait_for_leader(),
        lambda client: client.create_snapshot(),
    ],
)
@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_another_loop_is_refused_before_anything_is_appended(engine: str, call: Call) -> None:
    machine = Counting()
    async with asyncio.timeout(PATIENCE_S), alone({"state_machine": machine}, engine=engine) as client:
        await client.wait_for_leader()

        async def elsewhere() -> None:
            with pytest.raises(ConfigError, match="another one: nothing was appended"):
                await call(client)

        await asyncio.to_thread(asyncio.run, elsewhere())
        await client.propose(b"own")
    assert machine.applied == [b"own"]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.register(Listener()),
        lambda client: client.unregister(Listener()),
        lambda client: client.resign(1),
        lambda client: client.hold_log("reader"),
        lambda client: client.begin_snapshot(),
    ],
    ids=["register", "unregister", "resign", "hold_log", "begin_snapshot"],
)
@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_only_a_replica_with_a_thread_of_its_own_does_anything_for_another_thread(
    engine: str, call: Callable[[RaftClient[bytes]], object]
) -> None:
    async with asyncio.timeout(PATIENCE_S), alone({"state_machine": Counting()}, engine=engine) as client:
        await client.wait_for_leader()
        await client.propose(b"first")
        if engine == "thread":
            await asyncio.to_thread(call, client)
        else:
            with pytest.raises(ConfigError, match="belongs to the event loop"):
                await asyncio.to_thread(call, client)


async def test_an_inline_replica_takes_nothing_from_another_thread() -> None:
    machine = Counting()
    async with asyncio.timeout(PATIENCE_S), alone({"state_machine": machine}, engine="inline") as client:
        await client.wait_for_leader()
        with pytest.raises(ConfigError, match="nothing was appended"):
            await asyncio.to_thread(asyncio.run, prepare(client))
        await client.propose(b"own")
    assert machine.applied == [b"own"]


async def test_a_client_that_another_loop_has_tried_to_close_goes_on() -> None:
    async with asyncio.timeout(PATIENCE_S), alone(engine="inline") as client:
        await client.wait_for_leader()
        with pytest.raises(ConfigError, match="belongs to the event loop"):
            await asyncio.to_thread(asyncio.run, client.close())
        assert (await client.append([b"own"])).last_offset == (await client.append_one(b"own")).last_offset - 1


PROGRAM = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
from kraftlib import blocking
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ClosedError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.types import Endpoint

PLACE = Endpoint("replica", 1)
config = RaftConfig(node_id=1, voters=(StaticVoter(1, PLACE),), engine=sys.argv[1].removesuffix("-blocking"))
transport = MemoryTransport(MemoryHub(), PLACE)

def refused(call):
    try:
        call()
    except ClosedError as error:
        return "is a fork of that" in str(error)
    return False

def child_of(client, calls):
    child = os.fork()
    if child == 0:
        os._exit(0 if all([refused(call) for call in calls]) else 7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

async def main():
    async with RaftClient(config, transport=transport) as client:
        await client.wait_for_leader()
        child_of(client, [client.status, client.metrics, client.leader_and_epoch, client.high_watermark,
                          lambda: asyncio.run(client.append_one(b"x"))])
        await client.append_one(b"parent")

def threads():
    with blocking.RaftClient(config, transport=transport) as client:
        client.wait_for_leader()
        child_of(client, [client.status, client.metrics, client.leader_and_epoch, lambda: client.append_one(b"x"),
                          client.wait_closed, lambda: (client.close(), client.status())])
        client.append_one(b"parent")

threads() if sys.argv[1].endswith("-blocking") else asyncio.run(main())
"""


OUTLIVED = """
import asyncio, os, signal, socket, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint

directory = Path(sys.argv[2])
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    place = Endpoint(*free.getsockname())
format_directory(directory, node_id=1, cluster_id="forking", static_voters=[1])
config = RaftConfig(node_id=1, voters=(StaticVoter(1, place),), listen=place, directory=directory, engine=sys.argv[1])

async def main():
    async with asyncio.timeout(60):
        client = RaftClient(config)
        await client.start()
        await client.wait_for_leader()
        reader, writer = await asyncio.open_connection(place.host, place.port)
        writer.write(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))  # ApiVersions
        await reader.readexactly(4)
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        try:
            await client.close()
            await reader.read()  # ends: so the connection does, though the child has not
            writer.close()
            async with RaftClient(config) as again:
                await again.wait_for_leader()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_a_child_that_outlives_the_replica_keeps_no_directory_address_or_connection(
    engine: str, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", OUTLIVED, engine, str(tmp_path / "replica")]
    done = subprocess.run(program, cwd=ROOT, timeout=3 * PATIENCE_S, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("engine", ["inline", "thread", "inline-blocking"])
def test_a_forked_child_is_told_so_and_the_parent_goes_on(engine: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, engine], cwd=ROOT, timeout=PATIENCE_S, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
