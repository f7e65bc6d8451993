"""The replica that the fuzzer speaks to, in a process of its own: `python -m tools.fuzz.victim DIRECTORY`.

Its log is in an empty directory: in memory it would grow with each commit, and hide what strangers leave behind. It
prints its port, commits one record after the other, and answers each line of its input with a report of the time since
the one before: a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import NotLeaderError, OutcomeUnknownError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint

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


async def commit(client: RaftClient[bytes], took_ms: list[float]) -> None:
    """Commit one record after the other, through elections, too."""
    while True:
        began = time.perf_counter()
        while True:
            try:
                await client.append_one(b"x" * 100)
                break
            except (NotLeaderError, OutcomeUnknownError):
                await asyncio.sleep(0.001)
        took_ms.append((time.perf_counter() - began) * 1_000)
        await asyncio.sleep(COMMIT_PAUSE_S)


async def main(directory: Path) -> None:
    """Serve until the input ends."""
    faults = Faults()
    logging.getLogger().addHandler(faults)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(faults.uncaught)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    voters = (StaticVoter(1, Endpoint("127.0.0.1", port)),)
    took_ms: list[float] = []
    format_directory(directory, node_id=1, cluster_id="fuzz")
    config = RaftConfig(node_id=1, voters=voters, cluster_id="fuzz", engine="inline", directory=directory)
    async with RaftClient[bytes](config) as client:
        await client.wait_for_leader()
        committing = loop.create_task(commit(client, took_ms))
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
    asyncio.run(main(Path(sys.argv[1])))
