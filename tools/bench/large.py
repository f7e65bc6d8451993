"""`dev.py bench --large-log MIB,MIB` and `--large-state KEYS,KEYS`: the cost of size at several sizes, and its slope.

A voter leads alone and commits a small record every 10 ms; it and the replica that joins it are processes of their own.

With a log, the leader has so many MiB of records and no snapshot. It opens its directory after a clean end and after
`kill -9`, and an observer with an empty directory fetches the whole log.

With a state, the leader has so many keys with values of 1,000 bytes in a snapshot, and no records behind it. It loads
them and takes a new snapshot, and an observer fetches and loads that.

The memory of both and the latency of the commits are shown beside the times. A straight line through the figures of all
sizes gives those of a larger one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from kraftlib.config import RaftConfig
from kraftlib.plain_values import parse_voters
from kraftlib.records.batch import encode_batch
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.types import ElectionState, Endpoint
from tools.bench.catch_up import prepare_snapshot
from tools.bench.machine import free_port
from tools.bench.snapshot import Keys

ROOT: Final = Path(__file__).resolve().parents[2]
HOST: Final = "127.0.0.1"
VOTER, OBSERVER = 1, 2
VALUE_BYTES: Final = 1_000
KEY_BYTES: Final = 8
VALUES_AT_ONCE: Final = 1_000
BATCH_VALUES: Final = 1_040
"""About 1 MiB."""
COMMIT_EVERY_S: Final = 0.01
IDLE_S: Final = 3.0
LOOK_EVERY_S: Final = 0.02
PATIENCE_S: Final = 1_800.0
TIMESTAMP_MS: Final = 1_700_000_000_000
MEMORY: Final = {"VmHWM": "peak_mib", "RssAnon": "own_mib", "RssFile": "mapped_mib"}
"""Lines of /proc/self/status: the most that was ever resident, what no file backs, and what files back."""


async def measure_log(directory: Path, mib: int, *, say: Callable[[str], object]) -> dict[str, Any]:
    """Return the figures of a log of about `mib` MiB."""
    home = directory / f"log-{mib}"
    say(f"writing a log of {mib:,} MiB")
    await asyncio.to_thread(_write_log, home / "voter", mib)
    found: dict[str, Any] = {"mib": mib}
    async with _Child.running("leader", home / "voter", free_port()) as leader:
        found["open_closed_s"] = (await leader.line())["started_s"]
        await leader.kill()
    port = free_port()
    async with _Child.running("leader", home / "voter", port) as leader:
        found["open_killed_s"] = (await leader.line())["started_s"]
        found |= await _joined(home / "observer", leader, port, say)
    found["fetch_mib_per_s"] = round(mib / found["caught_up_s"], 1)
    shutil.rmtree(home)
    return found


async def measure_state(directory: Path, keys: int, *, say: Callable[[str], object]) -> dict[str, Any]:
    """Return the figures of a state of so many keys."""
    home, port = directory / f"state-{keys}", free_port()
    say(f"writing a snapshot of {keys:,} keys")
    await asyncio.to_thread(prepare_snapshot, home / "voter", _items(keys))
    found: dict[str, Any] = {"keys": keys, "mib": keys * (KEY_BYTES + VALUE_BYTES) >> 20}
    async with _Child.running("leader", home / "voter", port, keys=keys) as leader:
        opened = await leader.line()
        found |= {"loaded_s": opened["loaded_s"], "leader_loaded_mib": opened["own_mib"]}
        await asyncio.sleep(IDLE_S)
        idle = await leader.ask("mark")
        say("taking a snapshot")
        taken = await leader.ask("snapshot")
        busy = await leader.ask("mark")
        found |= {"snapshot_s": taken["took_s"], "leader_peak_mib": busy["peak_mib"]}
        found |= {"idle_p99_ms": idle["p99_ms"], "snapshot_p99_ms": busy["p99_ms"], "snapshot_max_ms": busy["max_ms"]}
        found |= await _joined(home / "observer", leader, port, say, keys=keys)
    shutil.rmtree(home)
    return found


async def _joined(
    directory: Path, leader: _Child, port: int, say: Callable[[str], object], *, keys: int = 0
) -> dict[str, Any]:
    """Start an observer with an empty directory, and wait until it has everything."""
    format_directory(directory, node_id=OBSERVER, cluster_id="bench", static_voters=[VOTER])
    await asyncio.sleep(IDLE_S)
    idle = await leader.ask("mark")
    say("an observer catches up")
    async with _Child.running("observer", directory, port, keys=keys, goal=idle["end_offset"]) as observer:
        observed = await observer.line()
        busy = await leader.ask("mark")
    return {
        "caught_up_s": observed["caught_up_s"],
        "before_p99_ms": idle["p99_ms"],
        "meanwhile_p99_ms": busy["p99_ms"],
        "meanwhile_max_ms": busy["max_ms"],
        "leader_own_mib": busy["own_mib"],
        "leader_mapped_mib": busy["mapped_mib"],
        "observer_own_mib": observed["own_mib"],
        "observer_peak_mib": observed["peak_mib"],
    }


def _write_log(directory: Path, mib: int) -> None:
    """Make the directory of a voter that has so many MiB of records, of about 1,000 bytes each."""
    format_directory(directory, node_id=VOTER, cluster_id="bench", static_voters=[VOTER])
    opened = open_directory(RaftConfig(node_id=VOTER, cluster_id="bench", directory=directory))
    log, values = opened.log, [os.urandom(VALUE_BYTES)] * BATCH_VALUES
    for number in range(mib):
        log.append([encode_batch(values, timestamp_ms=TIMESTAMP_MS, base_offset=number * BATCH_VALUES, epoch=1)])
        if number % 64 == 63:
            log.flush()
    log.flush()
    opened.elections.write(ElectionState(epoch=1, leader_id=VOTER), kraft_version=0, voters=[VOTER])
    opened.close()


def _items(keys: int) -> Iterator[list[bytes]]:
    value = os.urandom(VALUE_BYTES)
    for first in range(0, keys, VALUES_AT_ONCE):
        numbers = range(first, min(first + VALUES_AT_ONCE, keys))
        yield [number.to_bytes(KEY_BYTES, "big") + value for number in numbers]


class _Child:
    """One of the two processes. It says a line of JSON when it is ready, and one for each that it is asked."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def running(
        cls, role: str, directory: Path, port: int, *, keys: int = 0, goal: int = 0
    ) -> AsyncIterator[_Child]:
        """Run one, and kill it in the end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tools.bench.large", role, str(directory), str(port), str(keys), str(goal),
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        child = cls(process)
        try:
            yield child
        finally:
            await child.kill()

    async def line(self) -> dict[str, Any]:
        """Return what it says next."""
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S)  # type: ignore[union-attr]
        if not line:
            raise RuntimeError("a process of the benchmark has ended; above is why")
        found: dict[str, Any] = json.loads(line)
        return found

    async def ask(self, what: str) -> dict[str, Any]:
        """Ask for something, and return what it says."""
        self._process.stdin.write(f"{what}\n".encode())  # type: ignore[union-attr]
        return await self.line()

    async def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()


def _config(node_id: int, directory: Path, **settings: Any) -> RaftConfig:
    return RaftConfig(
        node_id=node_id,
        cluster_id="bench",
        directory=directory,
        snapshot_interval_bytes=0,
        snapshot_interval_ms=0,
        **settings,
    )


async def _lead(directory: Path, port: int, keys: int) -> None:
    """Lead alone, commit a record every 10 ms, and answer "mark" and "snapshot"."""
    config = _config(VOTER, directory, voters=parse_voters(f"{VOTER}@{HOST}:{port}"), listen=Endpoint(HOST, port))
    began = time.monotonic()
    machine = Keys(0) if keys else None
    async with RaftClient[bytes](config, state_machine=machine) as client:
        await client.wait_for_leader()
        started_s = time.monotonic() - began
        while machine is not None and len(machine.items) < keys:  # noqa: ASYNC110 - nothing tells of that
            await asyncio.sleep(LOOK_EVERY_S)
        _say(started_s=round(started_s, 3), loaded_s=round(time.monotonic() - began, 2), **_memory())
        latencies: list[float] = []
        committing = asyncio.create_task(_commit(client, latencies))
        try:
            while what := (await asyncio.to_thread(sys.stdin.readline)).strip():
                asked = time.monotonic()
                if what == "snapshot":
                    await client.create_snapshot()
                    _say(took_s=round(time.monotonic() - asked, 2))
                    continue
                ordered = sorted(latencies) or [0.0]
                latencies.clear()
                _say(
                    p50_ms=round(ordered[len(ordered) // 2] * 1_000, 2),
                    p99_ms=round(ordered[int(len(ordered) * 0.99)] * 1_000, 2),
                    max_ms=round(ordered[-1] * 1_000, 2),
                    end_offset=client.status().log_end_offset,
                    **_memory(),
                )
        finally:
            committing.cancel()


async def _commit(client: RaftClient[bytes], latencies: list[float]) -> None:
    """Append a record when it is due, and note how long after that it was committed: a late one delays no other."""
    value, due = bytes(KEY_BYTES) + b"w" * 100, time.monotonic()
    appending: set[asyncio.Task[None]] = set()

    async def append(due: float) -> None:
        await client.append_one(value)
        latencies.append(time.monotonic() - due)

    while True:
        due += COMMIT_EVERY_S
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        task = asyncio.create_task(append(due))
        appending.add(task)
        task.add_done_callback(appending.discard)


async def _observe(directory: Path, port: int, keys: int, goal: int) -> None:
    """Follow until everything is there, and loaded."""
    config = _config(OBSERVER, directory, bootstrap_servers=(Endpoint(HOST, port),))
    began = time.monotonic()
    machine = Keys(0) if keys else None
    async with RaftClient[bytes](config, state_machine=machine) as client:
        while client.status().flushed_offset < goal or (  # noqa: ASYNC110 - nothing tells of that
            machine is not None and len(machine.items) < keys
        ):
            await asyncio.sleep(LOOK_EVERY_S)
        _say(caught_up_s=round(time.monotonic() - began, 2), **_memory())
        await client.wait_closed()


def _memory() -> dict[str, float]:
    """Return what memory this process uses, in MiB."""
    lines = (line.split() for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    fields = {line[0].rstrip(":"): line[1] for line in lines if len(line) > 1}
    return {name: round(int(fields[field]) / 1_024, 1) for field, name in MEMORY.items()}


def _say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def slopes(rows: Sequence[dict[str, Any]], by: str, at: int) -> dict[str, float]:
    """Return what a straight line through each figure says of the size `at`; of one size alone it says nothing."""
    sizes = [row[by] for row in rows]
    if len(set(sizes)) < 2:
        return {}
    names = [name for name in rows[0] if name not in {by, "mib", "keys"} and not name.endswith(("_ms", "per_s"))]
    lines = {name: statistics.linear_regression(sizes, [row[name] for row in rows]) for name in names}
    return {name: round(line.slope * at + line.intercept, 1) for name, line in lines.items()}


def as_text(rows: Sequence[dict[str, Any]], by: str, at: int) -> str:
    """Return a table with a row for each figure and a column for each size, and what the line says of `at`."""
    line = slopes(rows, by, at)
    head = [f"{row[by]:,} {by}" for row in rows] + ([f"line at {at:,} {by}"] if line else [])
    table = [f"{'':<20}" + "".join(f"{name:>24}" for name in head)]
    for name in rows[0]:
        if name != by:
            values = [f"{row[name]:,}" for row in rows] + ([f"{line[name]:,}"] if name in line else [])
            table.append(f"{name:<20}" + "".join(f"{value:>24}" for value in values))
    return "\n".join(table)


if __name__ == "__main__":
    _role, _directory, _port, _keys, _goal = sys.argv[1:]
    if _role == "leader":
        asyncio.run(_lead(Path(_directory), int(_port), int(_keys)))
    else:
        asyncio.run(_observe(Path(_directory), int(_port), int(_keys), int(_goal)))
