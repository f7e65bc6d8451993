"""The load of the bench: N callers in the leader's own process, each appending one record and waiting for its commit.

A closed loop: a caller appends the next record when the last one is committed, so N records are under way at any time
and a slow commit slows the callers, not just a statistic. Or one caller with an appender that lets N records be under
way: the cost of a record without a future and a task of its own.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
import time
from array import array
from collections.abc import Mapping
from typing import Any, Final

from kraftlib.runtime.client.raft_client import RaftClient

WARM_UP_S: Final = 0.3
PROFILE_ROWS: Final = 25


async def run_load(client: RaftClient[bytes], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Run `callers` for `seconds` with values of `size` bytes; return the figures. With `appender` it is one caller.

    An appender says nothing of single records, so there are no latencies then. Before that it warms up for `warm_up_s`,
    0.3 by default. A measurement of this process from outside sets 0, since it would count the warm-up, too.

    Raises: NotLeaderError, OutcomeUnknownError, if this replica does not lead all the while.
    """
    callers, seconds, size = int(wanted["callers"]), float(wanted["seconds"]), int(wanted["size"])
    value = b"x" * size
    await client.wait_for_leader()  # one that was just elected is about to accept records
    loop = _appender_loop if wanted.get("appender") else _closed_loop
    if warm_up_s := float(wanted.get("warm_up_s", WARM_UP_S)):
        await loop(client, value, callers, warm_up_s)
    profile = cProfile.Profile() if wanted.get("profile") else None
    if profile:
        profile.enable()
    began_cpu, began = time.process_time(), time.perf_counter()
    commits, latencies = await loop(client, value, callers, seconds)
    elapsed, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    if profile:
        profile.disable()
    ordered = sorted(latencies)
    return {
        "commits": commits,
        "commits_per_s": commits / elapsed,
        "p50_us": _at(ordered, 0.50) / 1_000,
        "p99_us": _at(ordered, 0.99) / 1_000,
        "leader_cpu": cpu / elapsed,
        "event_loop": type(asyncio.get_running_loop()).__module__.partition(".")[0],
        **({"profile": _calls(profile, commits) + _top(profile)} if profile else {}),
    }


async def _appender_loop(
    client: RaftClient[bytes], value: bytes, in_flight: int, seconds: float
) -> tuple[int, array[int]]:
    """Return the number of commits, and no latencies."""
    end = time.perf_counter() + seconds
    async with client.appender(max_in_flight=in_flight) as appender:
        while time.perf_counter() < end:
            await appender.put_many([value] * in_flight)
    return appender.settled, array("q")


async def _closed_loop(client: RaftClient[bytes], value: bytes, callers: int, seconds: float) -> tuple[int, array[int]]:
    """Return the number of commits, and how long each took, in ns."""
    latencies = array("q")
    append, clock, note = client.append_one, time.perf_counter_ns, latencies.append
    end = clock() + int(seconds * 1e9)

    async def call() -> None:
        now = clock()
        while now < end:
            await append(value)
            began, now = now, clock()
            note(now - began)

    tasks = [asyncio.create_task(call()) for _ in range(callers)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return len(latencies), latencies


def _at(ordered: list[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _calls(profile: cProfile.Profile, commits: int) -> str:
    """Say how often functions were called for a commit: it is what a busy machine does not change."""
    entries = profile.getstats()
    python = sum(entry.callcount for entry in entries if not isinstance(entry.code, str))
    built_in = sum(entry.callcount for entry in entries) - python
    each = max(commits, 1)
    return f"calls a commit: {python / each:.1f} of Python functions, {built_in / each:.1f} of built-in ones\n"


def _top(profile: cProfile.Profile) -> str:
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(PROFILE_ROWS)
    return out.getvalue()
