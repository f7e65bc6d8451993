"""A process that is told to stop hands over, flushes and closes before it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ConfigError, ReplicaFailedError, StorageError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.client.signals import run_until_signalled
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import Endpoint
from tests.runtime.quorum import PATIENCE_S, TIMING

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import asyncio, sys
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.client.signals import run_until_signalled
from kraftlib.types import Endpoint

config = RaftConfig(
    node_id=1, directory=sys.argv[1], engine=sys.argv[2], voters=(StaticVoter(1, Endpoint("127.0.0.1",
    int(sys.argv[3]))),)
)
client = RaftClient(config)

async def append():
    await client.wait_for_leader()
    await client.append_one(b"before the end")
    print("appended", flush=True)

async def main():
    tasks = []
    await run_until_signalled(client, started=lambda: tasks.append(asyncio.ensure_future(append())))
    print("closed", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_with_everything_closed(
    tmp_path: Path, engine: str, number: signal.Signals, free_port: int
) -> None:
    directory = tmp_path / "replica"
    format_directory(directory, node_id=1, cluster_id="test")
    arguments = [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM, str(directory), engine, str(free_port)]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "appended\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "closed\n"), err
    opened = open_directory(RaftConfig(node_id=1, directory=directory))
    values = [value for batch in opened.log.read(0, 1 << 20) for value in batch.values()]
    opened.log.close()
    opened.elections.close()
    assert values == [b"before the end"]


def alone(**stores: MemoryReplicatedLog) -> RaftClient[bytes]:
    config = RaftConfig(node_id=1, voters=(StaticVoter(1, Endpoint("replica", 1)),), engine="inline", **TIMING)
    return RaftClient(config, transport=MemoryTransport(MemoryHub(), Endpoint("replica", 1)), **stores)


async def test_a_replica_that_stops_itself_ends_it_too() -> None:
    class FailingLog(MemoryReplicatedLog):
        def flush(self) -> int:
            raise StorageError("the disk is gone")

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ReplicaFailedError, match="the disk is gone"):
            await run_until_signalled(alone(log=FailingLog()))


async def test_what_start_refuses_is_raised() -> None:
    client: RaftClient[bytes] = RaftClient(RaftConfig(node_id=1, engine="inline"))
    with pytest.raises(ConfigError, match="knows of nobody"):
        await run_until_signalled(client)
