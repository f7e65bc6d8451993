"""`dev.py bench --hostile N`: commits while a stranger sends N frames a second to all voters.

Quiet and attacked trials in turn, so that a busy machine slows both. With a secret (the default) or with certificates
(`--tls`) nothing that the stranger sends is served; `--open-port` measures a port without either, on which a stranger
may elect and remove, and only memory and crashes are looked at. With root, the stranger lives in a network
namespace of its own, so that it comes from an address that is none of a voter; else it comes from loopback, as the
voters do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import statistics
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.cluster import Cluster, RefusedError, Voter
from kraftlib.errors import KraftError
from kraftlib.recipes.signals import ExitAtSigterm
from kraftlib.storage.log.growing_log import TAIL_BYTES
from tools.bench.certificate import make_certificate
from tools.bench.outside import outside

CALLERS: Final = 16
FILL_SIZE: Final = 4_096
REST_S: Final = 5.0
"""Before memory is looked at: a voter gives it back when strangers have been gone for some seconds."""


@contextlib.contextmanager
def own_processor() -> Iterator[set[int]]:
    """Yield a processor that nothing else which starts meanwhile runs on; an empty set where there is only one."""
    everywhere = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    if len(everywhere) < 2:
        yield set()
        return
    own = {max(everywhere)}
    os.sched_setaffinity(0, everywhere - own)
    try:
        yield own
    finally:
        os.sched_setaffinity(0, everywhere)


async def measure_hostile(
    directory: Path, rate: int, *, burst: int, seconds: float, trials: int, guard: str
) -> dict[str, Any]:
    """Return p99 of a commit without and with a stranger, what it cost the leader, and what the stranger did.

    `guard` is what keeps it out: "secret", "tls" or "nothing". SIGTERM ends it as Ctrl-C does: nothing is left behind.
    """
    with ExitAtSigterm(), outside() as (host, inside), own_processor() as own:
        settings = _settings(guard, directory, host)
        words = [*inside, sys.executable, "-m", "tools.bench.attacker", *(["--tls"] if guard == "tls" else [])]
        async with Cluster(directory, settings=settings, host=host, program="tools.bench.voter") as cluster:
            found = await _measure(cluster, (rate, burst), seconds, trials, words, own)
    return {"guard": guard, "from": "another network namespace" if inside else "loopback", **found}


def _settings(guard: str, directory: Path, host: str) -> dict[str, str | int]:
    if guard == "nothing":
        return {"insecure": True}
    if guard == "tls":
        return make_certificate(directory, host)
    secret = directory / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_urlsafe(32) + "\n")
    return {"sasl.secret_file": str(secret)}


async def _measure(
    cluster: Cluster, pace: tuple[int, int], seconds: float, trials: int, words: Sequence[str], own: set[int]
) -> dict[str, Any]:
    found: dict[str, list[float]] = {"quiet": [], "hostile": []}
    done: list[dict[str, int]] = []
    lost = 0
    first, first_epoch = await cluster.leader()
    await _fill(cluster)
    before = {voter.number: resident_bytes(voter) for voter in cluster.voters.values()}
    most = dict(before)
    for number in range(trials):
        found["quiet"].append((await _load(cluster, seconds))["p99_us"])
        async with _attack(cluster, pace, seconds + 1, number, words) as attacker:
            if own:
                os.sched_setaffinity(attacker.pid, own)
            assert attacker.stdout is not None
            await attacker.stdout.readline()  # it has drawn its frames
            try:
                await asyncio.sleep(0.5)
                found["hostile"].append((await _load(cluster, seconds, attempts=1))["p99_us"])
            except (RefusedError, ConnectionError):
                lost += 1
            for voter in cluster.voters.values():
                most[voter.number] = max(most[voter.number], resident_bytes(voter))
            out, _ = await attacker.communicate()
        if attacker.returncode:
            raise KraftError(f"the stranger ended with status {attacker.returncode}: see above")
        done.append(json.loads(out))
        print(f"trial {number + 1} of {trials}", file=sys.stderr)
    await asyncio.sleep(REST_S)
    await _load(cluster, seconds)
    after = {voter.number: resident_bytes(voter) for voter in cluster.voters.values()}
    last, last_epoch = await cluster.leader()
    quiet, hostile = (statistics.median(found[name] or [0.0]) for name in ("quiet", "hostile"))
    return {
        "frames_per_s": pace[0],
        "burst": pace[1],
        "own_processor": bool(own),
        "callers": CALLERS,
        "trials": trials,
        "p99_quiet_us": round(quiet),
        "p99_hostile_us": round(hostile),
        "p99_ratio": round(hostile / quiet, 2),
        "trials_lost": lost,
        "epochs_raised": last_epoch - first_epoch,
        "same_leader": last.number == first.number,
        "rss_most": round(max(most[number] / before[number] for number in before), 2),
        "rss_after": round(max(after[number] / before[number] for number in before), 2),
        "frames_sent": sum(each.get("frames", 0) for each in done),
        "frames_sent_per_s": round(statistics.mean(each["rate"] for each in done)),
        "late_p50_us": max(each["late p50"] for each in done),
        "late_p99_us": max(each["late p99"] for each in done),
        "connections_made": sum(each.get("connections", 0) for each in done),
        "closed_by_us": sum(each.get("closed by the other side", 0) for each in done),
    }


async def _fill(cluster: Cluster) -> None:
    """Append as much as each voter keeps of the newest batches in memory: from then on its memory stays as it is."""
    leader, _ = await cluster.leader()
    written = 0
    while written < 2 * TAIL_BYTES:
        done = await leader.ask("load", {"callers": 64, "seconds": 1.0, "size": FILL_SIZE}, timeout_ms=31_000)
        written += done["commits"] * FILL_SIZE


async def _load(cluster: Cluster, seconds: float, *, attempts: int = 5) -> dict[str, Any]:
    """Put load on the leader. Raises: RefusedError, ConnectionError, if it was lost in each of so many attempts."""
    load = {"callers": CALLERS, "seconds": seconds, "size": 100}
    while True:
        attempts -= 1
        leader, _ = await cluster.leader()
        try:
            result: dict[str, Any] = await leader.ask("load", load, timeout_ms=int(seconds * 1_000) + 30_000)
            return result
        except (RefusedError, ConnectionError):
            if attempts == 0:
                raise
            await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def _attack(
    cluster: Cluster, pace: tuple[int, int], seconds: float, seed: int, words: Sequence[str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    targets = ",".join(str(each) for each in cluster.endpoints)
    command = [*words, targets, "--cluster-id", cluster.cluster_id]
    for name, value in {"rate": pace[0], "burst": pace[1], "seconds": seconds, "seed": seed}.items():
        command += [f"--{name}", str(value)]
    attacker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        yield attacker
    finally:
        if attacker.returncode is None:
            attacker.kill()
            await attacker.wait()


def resident_bytes(voter: Voter) -> int:
    """Return the memory that the process of a voter has in RAM."""
    pages = int(Path(f"/proc/{voter.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def as_text(found: dict[str, Any]) -> str:
    """Return the figures for people."""
    place = f"{found['from']}, {'a processor of its own' if found['own_processor'] else 'the processor of the voters'}"
    return (
        f"the ports are guarded by {found['guard']}\n"
        f"a stranger ({place}) sent {found['frames_sent']:,} frames, {found['frames_sent_per_s']:,} a second "
        f"of {found['frames_per_s']:,} that were wanted, {found['burst']} at once, over "
        f"{found['connections_made']:,} connections\n"
        f"half of them left {found['late_p50_us']:,} µs late at most, 99 of 100 {found['late_p99_us']:,} µs\n"
        f"p99 of a commit, {found['callers']} callers: {found['p99_quiet_us']:,} µs without it, "
        f"{found['p99_hostile_us']:,} µs with it: {found['p99_ratio']} times\n"
        f"epochs raised: {found['epochs_raised']}; trials in which the leader was lost: {found['trials_lost']} of "
        f"{found['trials']}\n"
        f"memory of a voter: {found['rss_most']} times at most, {found['rss_after']} times afterwards"
    )
