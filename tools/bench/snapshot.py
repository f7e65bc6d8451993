"""`dev.py bench --snapshot KEYS`: the cost of a snapshot of so many keys, in itself and for a caller that commits
meanwhile.

One voter with a directory, every commit synced, and a state machine with so many keys. One caller commits as fast as it
is answered: with nothing else going on, then while a snapshot is frozen, written, synced and read back, then with
nothing else again, so that other users of the disk do not fall on one of the two alone. After that the checkpoint is
verified and restored into a new state machine, with nothing else going on.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from kraftlib.config import RaftConfig
from kraftlib.plain_values import parse_voters
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.storage import names
from kraftlib.storage.directory import format_directory
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import Endpoint, OffsetAndEpoch
from tools.bench.machine import free_port

VALUE_BYTES: Final = 100
PATIENCE_MS: Final = 20_000
KEY_BYTES: Final = 8


class Keys(StateMachine):
    """Keys of 8 bytes with values of 100."""

    def __init__(self, count: int) -> None:
        self.items = {number.to_bytes(KEY_BYTES, "big"): b"v" * VALUE_BYTES for number in range(count)}

    def apply(self, record: CommittedRecord) -> Any:
        """Set one key."""
        self.items[record.value[:KEY_BYTES]] = record.value[KEY_BYTES:]

    def freeze(self) -> Iterable[bytes]:
        """Copy the dict; keys and values are put together later."""
        copy = dict(self.items)
        return (key + value for key, value in copy.items())

    def restore(self, values: Iterable[bytes]) -> None:
        """Replace everything."""
        self.items = {value[:KEY_BYTES]: value[KEY_BYTES:] for value in values}


async def measure_snapshot(directory: Path, keys: int, *, engine: str, seconds: float) -> dict[str, Any]:
    """Return the figures of one engine."""
    format_directory(directory, node_id=1, cluster_id="bench", static_voters=[1])
    port = free_port()
    config = RaftConfig(
        node_id=1,
        directory=directory,
        voters=parse_voters(f"1@127.0.0.1:{port}"),
        listen=Endpoint("127.0.0.1", port),
        engine=engine,
        snapshot_interval_bytes=0,
        snapshot_interval_ms=0,
    )
    machine = Keys(keys)
    client: RaftClient[bytes] = RaftClient(config, state_machine=machine)
    async with client:
        await client.wait_for_leader(timeout_ms=PATIENCE_MS)
        await _commit_until(client, asyncio.get_running_loop().time() + min(seconds, 1.0))
        idle = await _commit_until(client, asyncio.get_running_loop().time() + seconds)
        began = time.perf_counter()
        taking = asyncio.create_task(client.create_snapshot())
        busy = await _commit_until(client, asyncio.get_running_loop().time() + PATIENCE_MS * 30, taking)
        taken_s = time.perf_counter() - began
        snapshot_id = await taking
        idle += await _commit_until(client, asyncio.get_running_loop().time() + seconds)
    path = directory / names.PARTITION_DIRECTORY / names.checkpoint_name(snapshot_id)
    size, mib = path.stat().st_size, path.stat().st_size / (1 << 20)
    verify_s, restore_s = _timed_reads(path, snapshot_id)
    return {
        "engine": engine,
        "keys": keys,
        "bytes": size,
        "snapshot_s": round(taken_s, 2),
        "snapshot_mib_per_s": round(mib / taken_s, 1),
        "snapshot_records_per_s": round(keys / taken_s),
        "verify_mib_per_s": round(mib / verify_s, 1),
        "restore_mib_per_s": round(mib / restore_s, 1),
        "restore_records_per_s": round(keys / restore_s),
        "idle_commits": len(idle),
        "idle_p50_ms": _percentile(idle, 50),
        "idle_p99_ms": _percentile(idle, 99),
        "busy_commits": len(busy),
        "busy_p50_ms": _percentile(busy, 50),
        "busy_p99_ms": _percentile(busy, 99),
        "busy_max_ms": round(max(busy), 2),
        "p99_ratio": round(_percentile(busy, 99) / max(_percentile(idle, 99), 0.01), 2),
    }


async def _commit_until(
    client: RaftClient[bytes], end_s: float, task: asyncio.Task[OffsetAndEpoch] | None = None
) -> list[float]:
    """Commit one record after the other until then, or until the task is done; return the ms of each."""
    loop, value = asyncio.get_running_loop(), bytes(KEY_BYTES) + b"w" * VALUE_BYTES
    times: list[float] = []
    while loop.time() < end_s and not (task is not None and task.done()):
        began = time.perf_counter()
        await client.append_one(value)
        times.append((time.perf_counter() - began) * 1_000)
    return times


def _timed_reads(path: Path, snapshot_id: OffsetAndEpoch) -> tuple[float, float]:
    began = time.perf_counter()
    with SnapshotReader(FileSnapshotSource(path), epoch=snapshot_id.epoch) as reader:
        for _ in reader.batches():
            pass
    verified = time.perf_counter()
    machine = Keys(0)
    with SnapshotReader(FileSnapshotSource(path), epoch=snapshot_id.epoch) as reader:
        machine.restore(value for batch in reader.batches() for value in batch.values())
    return verified - began, time.perf_counter() - verified


def _percentile(times: list[float], percent: int) -> float:
    return round(statistics.quantiles(times, n=100)[percent - 1], 2) if len(times) > 1 else 0.0


def as_text(found: dict[str, Any]) -> str:
    """Return the figures as sentences."""
    return (
        f"engine {found['engine']}, {found['keys']:,} keys, {found['bytes'] / (1 << 20):.0f} MiB:\n"
        f"  taken while committing in {found['snapshot_s']} s: {found['snapshot_mib_per_s']} MiB/s, "
        f"{found['snapshot_records_per_s']:,} records/s\n"
        f"  verified at {found['verify_mib_per_s']} MiB/s; restored at {found['restore_mib_per_s']} MiB/s, "
        f"{found['restore_records_per_s']:,} records/s\n"
        f"  a commit takes {found['idle_p50_ms']} ms (p99 {found['idle_p99_ms']}) before and after, and "
        f"{found['busy_p50_ms']} ms (p99 {found['busy_p99_ms']}, {found['p99_ratio']} times that; "
        f"at most {found['busy_max_ms']}) meanwhile"
    )
