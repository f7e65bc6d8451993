"""`dev.py bench --storage MIB`: the log on its disk, beside a file to which the same bytes are written and synced.

The cost of the log above a plain `pwrite` and `fdatasync` is the price of its order: offsets, epochs, an index, a note
of the durable end. Both are done in turn, flush by flush, so that a busy moment of the disk falls on both. In the same
way a log that grows is compared with one whose space is reserved, one whose space is filled with zeros, and one that
syncs its note, too; and a quorum of one that does so (`sync_note`) with one that does not. Then a log is opened: of a
process that was killed, after a clean end, and with its notes lost, when all of it must be read.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from kraftlib.config import RaftConfig
from kraftlib.plain_values import parse_voters
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.storage import names
from kraftlib.storage.directory import format_directory
from kraftlib.storage.file_log import FileReplicatedLog

ROOT: Final = Path(__file__).resolve().parents[2]
FLUSH_BYTES: Final = (4 << 10, 64 << 10, 1 << 20)
FLUSHES_MAX: Final = 200
BATCH_BYTES: Final = 1 << 20
WRITING_SECONDS: Final = 600
CALLERS: Final = (1, 16, 256)
TURNS: Final = 3
PATIENCE_MS: Final = 20_000
TIMESTAMP_MS: Final = 1_700_000_000_000


def measure_storage(directory: Path, mib: int, *, say: Callable[[str], object] = lambda line: None) -> dict[str, Any]:
    """Measure appends that are flushed, and how long a log of `mib` MiB takes to open, in a directory on that disk."""
    found: dict[str, Any] = {"mib": mib, "flush": [], "ahead": [], "alone": [], "open": []}
    for size in FLUSH_BYTES:
        say(f"flushes of {size >> 10} KiB")
        found["flush"].append(
            _measure_flushes(directory, size, count=max(5, min(FLUSHES_MAX, (mib << 20) // size // 4)))
        )
    found["ahead"] = [
        _measure_ahead(directory, size, count=row["flushes"], say=say)
        for size, row in zip(FLUSH_BYTES, found["flush"], strict=True)
    ]
    say("a quorum of one")
    found["alone"] = asyncio.run(_measure_alone(directory, seconds=min(1.0, mib / 100)))
    say(f"writing a log of {mib} MiB")
    found["open"] = _measure_opening(directory, mib, say)
    return found


def _measure_flushes(directory: Path, size: int, *, count: int) -> dict[str, Any]:
    """Flush `size` bytes `count` times, through the log and to a plain file in turn."""
    place = directory / f"flush-{size}"
    place.mkdir()
    log = FileReplicatedLog.open(place)
    plain = os.open(directory / f"plain-{size}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    through_log, to_file = [], []
    position = 0
    try:
        for _ in range(count):
            batch = _batch(log.end_offset, size)
            through_log.append(_seconds(_append, log, batch))
            to_file.append(_seconds(_write, plain, batch.data, position))
            position += len(batch.data)
    finally:
        os.close(plain)
        log.close()
    log_s, file_s = statistics.median(through_log), statistics.median(to_file)
    return {
        "bytes": size,
        "flushes": count,
        "log_ms": round(log_s * 1_000, 3),
        "file_ms": round(file_s * 1_000, 3),
        "log_mb_per_s": round(size / log_s / 1e6, 1),
        "file_mb_per_s": round(size / file_s / 1e6, 1),
        "ratio": round(sum(to_file) / sum(through_log), 2),
    }


def _measure_ahead(directory: Path, size: int, *, count: int, say: Callable[[str], object]) -> dict[str, Any]:
    """Flush `size` bytes `count` times through four logs in turn; each is in a segment made when it was wanted."""
    say(f"flushes of {size >> 10} KiB with space ahead")
    ahead = (count + 2) * (size + BATCH_BYTES // 8)
    logs: dict[str, FileReplicatedLog] = {}
    took: dict[str, list[float]] = {}
    try:
        for name, reserve, zero_fill, sync_note in (
            ("grows", 0, False, False),
            ("reserved", ahead, False, False),
            ("zeros", ahead, True, False),
            ("noted", 0, False, True),
        ):
            place = directory / f"{name}-{size}"
            place.mkdir()
            # The first batch is in the segment that a log begins with; the next one begins another.
            log = FileReplicatedLog.open(
                place,
                segment_bytes=ahead,
                segment_ms=1,
                reserve_bytes=reserve,
                zero_fill=zero_fill,
                sync_note=sync_note,
            )
            log.prepare_spare()
            logs[name], took[name] = log, []
            for timestamp_ms in (TIMESTAMP_MS - 10, TIMESTAMP_MS):
                _append(log, encode_batch([b"x"], timestamp_ms=timestamp_ms, base_offset=log.end_offset, epoch=1))
        for _ in range(count):
            batch = _batch(logs["grows"].end_offset, size)
            for name, log in logs.items():
                took[name].append(_seconds(_append, log, batch))
    finally:
        for log in logs.values():
            log.close()
    return {"bytes": size} | {f"{name}_ms": round(statistics.median(times) * 1_000, 3) for name, times in took.items()}


async def _measure_alone(directory: Path, *, seconds: float) -> list[dict[str, Any]]:
    """Return commits per second of a quorum of one that syncs its note and of one that does not, in turn."""
    per_s: dict[str, dict[int, list[float]]] = {}
    for turn in range(TURNS):
        for sync_note in ("never", "always"):
            place = directory / f"alone-{sync_note}-{turn}"
            counts = per_s.setdefault(sync_note, {callers: [] for callers in CALLERS})
            async with _alone(place, sync_note) as client:
                await client.wait_for_leader(timeout_ms=PATIENCE_MS)
                for callers in CALLERS:
                    counts[callers].append(await _commits_per_s(client, callers, seconds))
    return [
        {"callers": callers} | {name: round(statistics.median(counts[callers])) for name, counts in per_s.items()}
        for callers in CALLERS
    ]


def _alone(directory: Path, sync_note: str) -> RaftClient[bytes]:
    format_directory(directory, node_id=1, cluster_id="bench", static_voters=[1])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    voters = parse_voters(f"1@127.0.0.1:{port}")
    config = RaftConfig(node_id=1, directory=directory, voters=voters, engine="inline", sync_note=sync_note)
    return RaftClient(config)


async def _commits_per_s(client: RaftClient[bytes], callers: int, seconds: float) -> float:
    began = time.perf_counter()

    async def commit() -> int:
        count = 0
        while time.perf_counter() - began < seconds:
            await client.append_one(bytes(100))
            count += 1
        return count

    return sum(await asyncio.gather(*(commit() for _ in range(callers)))) / (time.perf_counter() - began)


def _append(log: FileReplicatedLog, batch: Batch) -> None:
    log.append([batch])
    log.flush()


def _write(descriptor: int, data: bytes | memoryview, position: int) -> None:
    os.pwrite(descriptor, data, position)
    os.fdatasync(descriptor)


def _batch(base_offset: int, size: int) -> Batch:
    """Return a batch of about `size` bytes, of records of about 1 KiB."""
    values = [os.urandom(1_000)] * max(1, size // 1_010)
    return encode_batch(values, timestamp_ms=TIMESTAMP_MS, base_offset=base_offset, epoch=1)


def _measure_opening(directory: Path, mib: int, say: Callable[[str], object]) -> list[dict[str, Any]]:
    place = directory / "open"
    place.mkdir()
    command = [sys.executable, "-m", "tools.bench.storage", str(place), str(mib)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=WRITING_SECONDS)
    rows = [_opened(place, how, say) for how in ("killed", "closed")]
    for name in (names.PREFIX, names.SYNC_POINT):
        (place / name).unlink(missing_ok=True)
    rows.append(_opened(place, "notes lost", say))
    return rows


def write_and_die(place: Path, mib: int) -> NoReturn:
    """Write a log of so many MiB, flush it, and end as a process that is killed: nothing is closed."""
    log = FileReplicatedLog.open(place)
    for number in range(mib):
        log.append([_batch(log.end_offset, BATCH_BYTES)])
        if number % 16 == 15:
            log.flush()
    log.flush()
    os._exit(0)


def _opened(place: Path, how: str, say: Callable[[str], object]) -> dict[str, Any]:
    """Open the log, close it cleanly, and return what the opening took."""
    say(f"opening it: {how}")
    began = time.perf_counter()
    log = FileReplicatedLog.open(place)
    seconds = time.perf_counter() - began
    read = log.bytes_read_at_start
    log.close()
    return {"after": how, "ms": round(seconds * 1_000, 1), "mib_read": round(read / (1 << 20), 1)}


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - began


def as_text(found: dict[str, Any]) -> str:
    """Return the tables."""
    lines = [f"{'flush of':>10} {'log':>10} {'file':>10} {'log':>12} {'file':>12} {'ratio':>6}"]
    for row in found["flush"]:
        lines.append(
            f"{row['bytes'] >> 10:>6} KiB {row['log_ms']:>7.2f} ms {row['file_ms']:>7.2f} ms"
            f" {row['log_mb_per_s']:>7.1f} MB/s {row['file_mb_per_s']:>7.1f} MB/s {row['ratio']:>6.2f}"
        )
    lines.append(f"\n{'flush of':>10} {'grows':>10} {'reserved':>10} {'zeros':>10} {'note synced':>12}")
    for row in found["ahead"]:
        times = " ".join(f"{row[f'{name}_ms']:>7.2f} ms" for name in ("grows", "reserved", "zeros", "noted"))
        lines.append(f"{row['bytes'] >> 10:>6} KiB {times}")
    lines.append(f"\n{'a quorum of one':<16} {'sync_note never':>18} {'always':>18}")
    for row in found["alone"]:
        callers = f"{row['callers']} caller{'s' if row['callers'] > 1 else ''}"
        lines.append(f"{callers:<16} {row['never']:>8,} commits/s {row['always']:>8,} commits/s")
    lines.append(f"\na log of {found['mib']} MiB opens")
    for row in found["open"]:
        lines.append(f"  {row['after']:<12} in {row['ms']:>9,.1f} ms, of which {row['mib_read']:,.1f} MiB were read")
    return "\n".join(lines)


if __name__ == "__main__":
    write_and_die(Path(sys.argv[1]), int(sys.argv[2]))
