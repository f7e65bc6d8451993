"""The replica that the fuzzer speaks to, in a process of its own: `python -m tools.fuzz.victim DIRECTORY [controller]`.

Its log is in an empty directory: in memory it would grow with each commit, and hide what strangers leave behind. It
prints its port, commits one record after the other, and answers each line of its input with a report of the time since
the one before: a line of JSON. A controller alters a configuration for each commit.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.controller import MetadataController, format_controller
from kraftlib.controller.configs import BROKER
from kraftlib.errors import NotLeaderError, OutcomeUnknownError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.net.transport import Peer
from kraftlib.storage.bootstrap import InitialController
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint, new_uuid
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

COMMIT_PAUSE_S = 0.01


class Faults(logging.Handler):
    """Keeps what no stranger may cause: errors in the log, and uncaught exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line of the log."""
        self.found.append(self.format(record))

    def uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Keep an exception that has reached the event loop."""
        self.found.append(f"{context.get('message')}: {context.get('exception')!r}")


def resident_bytes() -> int:
    """Return the resident memory of this process (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def commit(once: Callable[[int], Awaitable[object]], took_ms: list[float]) -> None:
    """Commit one record after the other, through elections, too. `once` commits the record of that number."""
    for number in itertools.count():
        began = time.perf_counter()
        while True:
            try:
                await once(number)
                break
            except (NotLeaderError, OutcomeUnknownError):
                await asyncio.sleep(0.001)
        took_ms.append((time.perf_counter() - began) * 1_000)
        await asyncio.sleep(COMMIT_PAUSE_S)


@asynccontextmanager
async def replica(directory: Path, place: Endpoint) -> AsyncIterator[Callable[[int], Awaitable[object]]]:
    """Run a replica; yield how to commit a record."""
    format_directory(directory, node_id=1, cluster_id="fuzz")
    voters = (StaticVoter(1, place),)
    config = RaftConfig(node_id=1, voters=voters, cluster_id="fuzz", engine="inline", directory=directory)
    async with RaftClient[bytes](config) as client:
        await client.wait_for_leader()
        yield lambda number: client.append_one(b"x" * 100)


@asynccontextmanager
async def controller(directory: Path, place: Endpoint) -> AsyncIterator[Callable[[int], Awaitable[object]]]:
    """Run a metadata controller; yield how to commit a record."""
    voter = InitialController(1, place, new_uuid())
    format_controller(directory, node_id=1, cluster_id="fuzz", initial_controllers=[voter])
    config = RaftConfig(node_id=1, directory=directory, listen=place, bootstrap_servers=(place,))
    async with MetadataController(config) as made:
        await made.wait_until_active()

        async def alter(number: int) -> None:
            changed = IncrementalAlterConfigsRequest.AlterableConfig(
                name="message.max.bytes", value=str(1_000_000 + number)
            )
            brokers = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=BROKER, resource_name="", configs=(changed,)
            )
            request = IncrementalAlterConfigsRequest(resources=(brokers,))
            answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            made.handle_request(request, request.valid_versions.last, Peer("victim"), answered.set_result)
            (row,) = (await answered).responses
            if row.error_code:
                raise NotLeaderError(str(row.error_message), leader=made.client.leader_and_epoch())

        yield alter


async def main(directory: Path, kind: str) -> None:
    """Serve until the input ends."""
    faults = Faults()
    logging.getLogger().addHandler(faults)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(faults.uncaught)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    took_ms: list[float] = []
    run = controller if kind == "controller" else replica
    async with run(directory, Endpoint("127.0.0.1", port)) as once:
        committing = loop.create_task(commit(once, took_ms))
        print(port, flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            ordered = sorted(took_ms)
            report = {
                "commits": len(ordered),
                "p99_ms": round(ordered[len(ordered) * 99 // 100], 2) if ordered else None,
                "resident_bytes": resident_bytes(),
                "faults": faults.found[:10],
            }
            took_ms.clear()
            print(json.dumps(report), flush=True)
        committing.cancel()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "replica"))
