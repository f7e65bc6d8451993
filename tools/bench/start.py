"""`dev.py bench --start TIMES`: the time of `import kraftlib`, and of a replica from there on, each in a new process.

The replica is the only voter of a directory that another process has formatted, with the default options. It has
started when its client accepts calls, and it leads when the first record may be appended. The start of the interpreter
and the import of asyncio do not count. A first process, which does not count either, leaves the bytecode of all modules
on the disk. `import kraftlib` alone loads next to nothing: a name is loaded when it is used for the first time.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE_S: Final = 60.0
STEPS: Final = ("import_ms", "started_ms", "leads_ms")


def measure_start(directory: Path, times: int) -> dict[str, Any]:
    """Return the median of each step in ms since the import began, and the extremes."""
    # Not above: this module is also the process that is measured, and attrs counts.
    from kraftlib.storage.directory import format_directory
    from tools.bench.machine import free_port

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    rows = []
    for number in range(times + 1):
        place = directory / str(number)
        format_directory(place, node_id=1, cluster_id="bench", static_voters=[1])
        command = [sys.executable, "-m", "tools.bench.start", str(place), str(free_port())]
        done = subprocess.run(
            command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, timeout=PATIENCE_S
        )
        rows.append(json.loads(done.stdout))
    found: dict[str, Any] = {"times": times}
    for step in STEPS:
        values = [row[step] for row in rows[1:]]
        found[step] = {
            "median": round(statistics.median(values), 1),
            "min": round(min(values), 1),
            "max": round(max(values), 1),
        }
    return found


def as_text(found: dict[str, Any]) -> str:
    """Return the figures as a table."""
    lines = [f"{found['times']} new processes, ms since `import kraftlib` began: median, and all"]
    names = ("kraftlib is imported", "the client has started", "the replica leads")
    for step, name in zip(STEPS, names, strict=True):
        row = found[step]
        lines.append(f"  {name:<24} {row['median']:>8} {row['min']:>8} to {row['max']}")
    return "\n".join(lines)


def _measured(directory: Path, port: int) -> dict[str, float]:
    began = time.perf_counter()
    import kraftlib

    imported = time.perf_counter()
    endpoint = kraftlib.Endpoint("127.0.0.1", port)
    config = kraftlib.RaftConfig(node_id=1, directory=directory, voters=(kraftlib.StaticVoter(1, endpoint),))

    async def start() -> tuple[float, float]:
        async with kraftlib.RaftClient[bytes](config) as client:
            started = time.perf_counter()
            await client.wait_for_leader()
            return started, time.perf_counter()

    started, leads = asyncio.run(start())
    return {
        "import_ms": (imported - began) * 1_000,
        "started_ms": (started - began) * 1_000,
        "leads_ms": (leads - began) * 1_000,
    }


if __name__ == "__main__":
    print(json.dumps(_measured(Path(sys.argv[1]), int(sys.argv[2]))))
