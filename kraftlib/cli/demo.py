"""`kraftlib demo`: a quorum at work, in one run that every reader can check.

Three voters as three processes, real sockets, real files, every commit synced on a majority of disks. Ten thousand
records are written and read back; the leader is killed with kill -9 while more are being written; another one goes on;
the old one returns and catches up. Then everything that was ever acknowledged is looked for, in the memory and in the
files of all three. The exit status is 0 only if all of it is there.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from kraftlib.cli.cluster import Cluster, ClusterError, Voter
from kraftlib.cli.demo_check import Disagreement, compare_logs, missing
from kraftlib.cli.demo_writer import Writer
from kraftlib.cli.story import Story

TIMEOUT_S: Final = 120.0
CATCH_UP_S: Final = 20.0
KILL_WITHIN_MS: Final = (100, 500)
AFTERWARDS: Final = 1_000
"""Records that must be acknowledged after the kill."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how much, and when the leader dies."""
    parser.description = (
        "Run three voters on this machine: elect, write, read back, kill -9 the leader, continue, restart it, and\n"
        "check that no acknowledged record is missing. Exit status 0: every check passed."
    )
    parser.epilog = "example:\n  kraftlib demo --seed 7 --kill-after-ms 250"
    parser.add_argument(
        "--records", type=int, default=10_000, help="number of records to write before the kill (10000)"
    )
    parser.add_argument(
        "--kill-after-ms", type=int, default=None, help="kill the leader this long after further writes began (random)"
    )
    parser.add_argument("--seed", type=int, default=None, help="of the random choices (random, and printed)")
    parser.add_argument(
        "--directory", type=Path, default=None, help="directory for the files (default: temporary, and removed)"
    )


def run(options: argparse.Namespace) -> int:
    """Tell the story; 0 if it ends well."""
    seed = random.randrange(10_000) if options.seed is None else options.seed
    kill_after_ms = options.kill_after_ms
    if kill_after_ms is None:
        kill_after_ms = random.Random(seed).randint(*KILL_WITHIN_MS)
    keep = options.directory is not None
    directory = options.directory or Path(tempfile.mkdtemp(prefix="kraftlib-demo-"))
    directory.mkdir(parents=True, exist_ok=True)
    story = Story()
    story.title(f"Three voters, {options.records:,} records, a killed leader (seed {seed})")
    try:
        asyncio.run(_play(story, directory, options.records, kill_after_ms))
    except (ClusterError, Disagreement, TimeoutError) as error:
        story.bad(f"it did not hold: {error or 'it took too long'}")
        story.more(f"the files are in {directory}")
        return 1
    story.good("all of it held")
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


async def _play(story: Story, directory: Path, count: int, kill_after_ms: int) -> None:
    def died(voter: Voter, status: int) -> None:
        story.tell(f"voter {voter.number} died outside the script (status {status}): started again", style="yellow")

    async with asyncio.timeout(TIMEOUT_S), Cluster(directory, on_death=died) as cluster:
        story.tell(f"three processes, cluster {cluster.cluster_id}, empty directories in {directory}")
        for voter in cluster.voters.values():
            story.more(f"voter {voter.number} is process {voter.pid}")
        leader, epoch = await cluster.leader()
        story.good(f"voter {leader.number} is elected leader of epoch {epoch}")

        writer = Writer(cluster)
        await _write_and_read_back(story, cluster, writer, count)
        old = await _kill_the_leader(story, cluster, writer, kill_after_ms)
        await _return_and_catch_up(story, cluster, old)
        await _look_for_everything(story, cluster, writer)
        await cluster.close()
        story.tell("stopped: every voter handed over, flushed and closed")


async def _write_and_read_back(story: Story, cluster: Cluster, writer: Writer, count: int) -> None:
    began = time.perf_counter()
    await writer.write(count)
    took = time.perf_counter() - began
    story.good(f"{count:,} records acknowledged, {count / took:,.0f} a second, each synced on a majority of disks")
    await _look_in_memory(cluster, writer)
    story.good(f"read back from voters {_names(cluster)}: {count:,} records each, all equal")


async def _kill_the_leader(story: Story, cluster: Cluster, writer: Writer, kill_after_ms: int) -> int:
    """Kill the leader in the middle of writes, and wait until enough more is acknowledged; return who it was."""
    before = len(writer.acknowledged)
    stream = asyncio.create_task(writer.write_until_stopped())
    await asyncio.sleep(kill_after_ms / 1_000)
    leader, epoch = await cluster.leader()
    pid, killed_at = leader.pid, time.perf_counter()
    await cluster.kill(leader.number)
    acknowledged = len(writer.acknowledged)
    story.tell(
        f"kill -9 of the leader, voter {leader.number} (process {pid}), {acknowledged - before:,} records later, "
        f"with more under way",
        style="bold",
    )
    new, new_epoch = await cluster.leader(after_epoch=epoch)
    elected_ms = (time.perf_counter() - killed_at) * 1_000
    story.good(f"voter {new.number} leads epoch {new_epoch}, {elected_ms:.0f} ms after the kill")
    reached = asyncio.create_task(writer.reached(acknowledged + AFTERWARDS))
    await asyncio.wait([stream, reached], return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    writer.stop()
    await stream
    first = writer.first_not_from(leader.number, after=killed_at) or time.perf_counter()
    story.good(
        f"{len(writer.acknowledged) - acknowledged:,} more acknowledged, the first "
        f"{(first - killed_at) * 1_000:.0f} ms after the kill"
    )
    return leader.number


async def _return_and_catch_up(story: Story, cluster: Cluster, number: int) -> None:
    voter = await cluster.start(number)
    story.tell(f"voter {number} is back, on its old directory, as process {voter.pid}")
    end = await _settled(cluster)
    story.good(f"it has caught up: voters {_names(cluster)} all end at offset {end:,}")


async def _look_for_everything(story: Story, cluster: Cluster, writer: Writer) -> None:
    await _look_in_memory(cluster, writer)
    story.good(f"all {len(writer.acknowledged):,} acknowledged records are in the memory of all three")
    end = await _settled(cluster)
    compared = await asyncio.to_thread(
        compare_logs, [voter.partition for voter in cluster.voters.values()], end, writer.acknowledged
    )
    story.good(
        f"and in their files: {compared.offsets:,} offsets in {compared.batches:,} batches, equal byte for byte on all "
        f"three disks"
    )


async def _look_in_memory(cluster: Cluster, writer: Writer) -> None:
    """Read everything from every voter. Raises: Disagreement, if an acknowledged record is missing somewhere."""
    while True:
        await _settled(cluster)
        try:
            answers = {voter.number: await voter.ask("all") for voter in cluster.voters.values()}
        except (ConnectionError, TimeoutError):
            continue  # a voter was killed from outside just now; it is being started again
        if len({answer["offset"] for answer in answers.values()}) == 1:
            break  # else one was started again since, and still reads its log
    for number, answer in answers.items():
        lacking = missing(writer.acknowledged, answer["items"])
        if lacking:
            raise Disagreement(f"voter {number} lacks {len(lacking)} acknowledged records, among them {lacking[0]!r}")


async def _settled(cluster: Cluster) -> int:
    """Wait until all three have the same log and have applied it; return its end offset."""
    deadline, seen = time.monotonic() + CATCH_UP_S, set[tuple[int, ...]]()
    while time.monotonic() < deadline:
        statuses = await cluster.statuses()
        seen = {
            (status["log_end_offset"], status["high_watermark"], status["applied_offset"]) for _, status in statuses
        }
        if len(statuses) == len(cluster.voters) and len(seen) == 1 and len(set(*seen)) == 1:
            return int(next(iter(seen))[0])
        await asyncio.sleep(0.005)
    raise Disagreement(f"the voters did not come to one log within {CATCH_UP_S:.0f} s: {sorted(seen)}")


def _names(cluster: Cluster) -> str:
    *most, last = map(str, cluster.voters)
    return f"{', '.join(most)} and {last}"
