"""`dev.py bench --catch-up MIB`: the traffic by which a replica, killed again and again, gets a snapshot of so many
MiB.

One voter that has the snapshot and nothing before it, and an observer with an empty directory, two processes. All that
the voter sends passes through a relay in this one, which counts it. The observer is killed (kill -9) every two seconds
until the last byte is on its way, and started again at once: a download goes on where it was, so little is sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from kraftlib.config import RaftConfig
from kraftlib.plain_values import parse_voters
from kraftlib.records.batch import encode_batch
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.storage import names
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.types import ElectionState, Endpoint, OffsetAndEpoch
from tools.bench.machine import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
KILL_EVERY_S: Final = 2.0
LOOK_EVERY_S: Final = 0.05
PATIENCE_S: Final = 600.0
VALUE_BYTES: Final = 1_000
VALUES_AT_ONCE: Final = 1_000
TIMESTAMP_MS: Final = 1_700_000_000_000
CHUNK: Final = 1 << 16
HOST: Final = "127.0.0.1"
VOTER, OBSERVER = 1, 2


class Relay:
    """Passes connections on to the voter, and counts what comes back."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0
        self.sent_bytes = 0
        """By the voter."""

    async def start(self) -> asyncio.Server:
        """Listen."""
        server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            voter_reader, voter_writer = await asyncio.open_connection(HOST, self.target)
            await asyncio.gather(self._pass(reader, voter_writer), self._pass(voter_reader, writer, counted=True))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool = False) -> None:
        try:
            while data := await reader.read(CHUNK):
                self.sent_bytes += len(data) if counted else 0
                writer.write(data)
                await writer.drain()
        except OSError:
            return  # one of them is gone, and the other one is told
        finally:
            writer.close()


async def measure_catch_up(directory: Path, mib: int, *, say: Callable[[str], object]) -> dict[str, Any]:
    """Return what was sent, and how often the observer was killed."""
    say(f"writing a snapshot of {mib} MiB")
    snapshot_id = prepare_snapshot(directory / "voter", _values(mib))
    format_directory(directory / "observer", node_id=OBSERVER, cluster_id="bench", static_voters=[VOTER])
    size = (directory / "voter" / names.PARTITION_DIRECTORY / names.checkpoint_name(snapshot_id)).stat().st_size
    relay = Relay()
    async with await relay.start():
        relay.target = free_port()
        voter = await _Child.start("voter", directory / "voter", relay.target, relay.port)
        say("catching up")
        began, kills = time.monotonic(), 0
        try:
            if not await asyncio.wait_for(voter.line(), PATIENCE_S):
                raise RuntimeError("the voter has ended; above is why")
            kills = await _catch_up(directory / "observer", relay, size, snapshot_id)
        finally:
            await voter.kill()
    return {
        "mib": mib,
        "snapshot_bytes": size,
        "sent_bytes": relay.sent_bytes,
        "ratio": round(relay.sent_bytes / size, 4),
        "kills": kills,
        "seconds": round(time.monotonic() - began, 1),
    }


async def _catch_up(directory: Path, relay: Relay, size: int, snapshot_id: OffsetAndEpoch) -> int:
    """Start the observer, and kill it while bytes are on their way; return how often, once it has the snapshot."""
    kills, deadline = 0, time.monotonic() + PATIENCE_S
    while True:
        observer = await _Child.start("observer", directory, relay.port)
        try:
            await asyncio.wait_for(observer.line(), PATIENCE_S)  # it runs
            killing = relay.sent_bytes < size
            wait_s = KILL_EVERY_S if killing else deadline - time.monotonic()
            line = await asyncio.wait_for(observer.line(), wait_s)
            if line.split() != ["has", str(snapshot_id.offset)]:
                raise RuntimeError(f"the observer says {line!r}, it should have {snapshot_id}")
            return kills
        except TimeoutError:
            if not killing:
                raise
            if relay.sent_bytes < size:
                kills += 1
            else:  # all of it is there: let it verify in peace
                await asyncio.wait_for(observer.line(), deadline - time.monotonic())
                return kills
        finally:
            await observer.kill()


class _Child:
    """One of the two processes; it says one line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._reading: asyncio.Future[bytes] | None = None

    @classmethod
    async def start(cls, role: str, directory: Path, *ports: int) -> _Child:
        command = [sys.executable, "-m", "tools.bench.catch_up", role, str(directory), *map(str, ports)]
        return cls(
            await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
            )
        )

    async def line(self) -> str:
        """Return what it says. May be given up and asked again."""
        if (self._reading is None or self._reading.done()) and self._process.stdout is not None:
            self._reading = asyncio.ensure_future(self._process.stdout.readline())
        if self._reading is None:
            return ""
        return (await asyncio.shield(self._reading)).decode("ascii")

    async def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if self._reading is not None:
            await asyncio.wait([self._reading])


def _values(mib: int) -> Iterator[list[bytes]]:
    for _ in range((mib << 20) // (VALUE_BYTES * VALUES_AT_ONCE) + 1):
        yield [os.urandom(VALUE_BYTES)] * VALUES_AT_ONCE


def prepare_snapshot(directory: Path, batches: Iterable[list[bytes]]) -> OffsetAndEpoch:
    """Make the directory of a voter that has nothing but a snapshot of these values and an empty log behind it."""
    format_directory(directory, node_id=VOTER, cluster_id="bench", static_voters=[VOTER])
    opened = open_directory(RaftConfig(node_id=VOTER, cluster_id="bench", directory=directory))
    log = opened.log
    log.append([encode_batch([b"first"], timestamp_ms=TIMESTAMP_MS, base_offset=0, epoch=1)])
    log.flush()
    snapshot_id = OffsetAndEpoch(offset=1, epoch=1)
    sink = log.create_snapshot(snapshot_id)
    writer = SnapshotWriter(sink.write, epoch=1, last_contained_log_timestamp=TIMESTAMP_MS)
    for values in batches:
        writer.append(values)
    writer.freeze()
    sink.freeze()
    log.delete_before(snapshot_id)
    log.flush()
    opened.elections.write(ElectionState(epoch=1, leader_id=VOTER), kraft_version=0, voters=[VOTER])
    opened.close()
    return snapshot_id


async def _be_voter(directory: Path, port: int, relay_port: int) -> None:
    """Lead, alone, and say so."""
    config = RaftConfig(
        node_id=VOTER,
        cluster_id="bench",
        directory=directory,
        voters=parse_voters(f"{VOTER}@{HOST}:{relay_port}"),
        listen=Endpoint(HOST, port),
        advertised=Endpoint(HOST, relay_port),
        snapshot_interval_bytes=0,
        snapshot_interval_ms=0,
    )
    async with RaftClient[bytes](config) as client:
        await client.wait_for_leader()
        print("leads", flush=True)
        await client.wait_closed()


async def _be_observer(directory: Path, relay_port: int) -> None:
    """Follow until the snapshot is there, and say so."""
    config = RaftConfig(
        node_id=OBSERVER,
        cluster_id="bench",
        directory=directory,
        bootstrap_servers=(Endpoint(HOST, relay_port),),
        snapshot_interval_bytes=0,
        snapshot_interval_ms=0,
    )
    async with RaftClient[bytes](config) as client:
        print("runs", flush=True)
        while not (start_offset := client.status().log_start_offset):  # noqa: ASYNC110 - nothing tells of that
            await asyncio.sleep(LOOK_EVERY_S)
        print("has", start_offset, flush=True)
        await client.wait_closed()


def as_text(found: dict[str, Any]) -> str:
    """Return the figures as a sentence."""
    return (
        f"a snapshot of {found['snapshot_bytes'] / (1 << 20):,.0f} MiB arrived after {found['seconds']} s and"
        f" {found['kills']} x kill -9: {found['sent_bytes'] / (1 << 20):,.0f} MiB were sent, {found['ratio']:.3f} times"
        " its size"
    )


if __name__ == "__main__":
    if sys.argv[1] == "voter":
        asyncio.run(_be_voter(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    else:
        asyncio.run(_be_observer(Path(sys.argv[2]), int(sys.argv[3])))
