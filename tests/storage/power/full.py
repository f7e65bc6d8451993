"""Disks that are really full: small file systems under a real quorum, and what it makes of them.

ext4 on loop images, and memory; of the leader, of a follower, or of all three; filled by what the quorum itself
appends, by more appends at once than there is space for, or by somebody else, down to the last byte, while appends are
under way, or while a follower is behind by more than its reserve. Meanwhile a leader refuses appends with an error that
says so, goes on to serve, and can resign: the next election has to be written to those
disks. When there is space again all goes on by itself, and whatever was acknowledged is in every log.

    python -m tests.storage.power.full

It needs root or sudo, as the power cuts do, and uses a mount namespace of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import DiskFullError, KraftError, NotLeaderError, OutcomeUnknownError, ReplicaFailedError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.waiters import Appended
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.types import Endpoint
from tests.storage.power.disk import NAMESPACE, MemoryDisk, PowerDisk, in_a_namespace, why_impossible

IDS = (1, 2, 3)
DISK_BYTES = 24 << 20
RESERVE_BYTES = 1 << 20
VALUE_BYTES = 20_000
SEGMENT_BYTES = 8 << 20
PATIENCE_S = 60.0
WRITERS = 8
FETCH_BYTES = 2 * RESERVE_BYTES
BEHIND = FETCH_BYTES // VALUE_BYTES
"""The number of records that a follower lacks when its disk is filled."""
AT_ONCE = 500
"""Appends at once: 10 MB. A leader accepts them, a disk that is filled has no space for them, and any other one has."""
BALLAST = "ballast"
TIMING = {
    "election_timeout_ms": 300,
    "election_backoff_max_ms": 200,
    "fetch_timeout_ms": 2_000,
    "fetch_max_wait_ms": 200,
    "request_timeout_ms": 2_000,
}


@attrs.define
class Case:
    """One of the ways, and what came of it."""

    system: str
    """ext4 or tmpfs."""
    whose: str
    """leader, follower or all."""
    how: str
    """appends, backlog, ballast or lag."""
    acknowledged: int = 0
    refused: int = 0
    elections: int = 0
    """That took place while disks were full."""
    bad: list[str] = attrs.Factory(list)
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.system}, {self.whose}, by {self.how}"


class Quorum:
    """Three replicas with a disk each, and everything that they have acknowledged."""

    def __init__(self, directories: dict[int, Path], case: Case) -> None:
        self.case = case
        self.acknowledged: set[bytes] = set()
        self.epoch = 0
        """Of what was acknowledged last."""
        self.clients: dict[int, RaftClient[bytes]] = {}
        self._directories = directories
        self._hub = MemoryHub()
        self._number = 0

    async def start(self) -> None:
        voters = tuple(StaticVoter(node_id, Endpoint("replica", node_id)) for node_id in IDS)
        for node_id, directory in self._directories.items():
            config = RaftConfig(
                node_id=node_id,
                voters=voters,
                directory=directory,
                disk_reserve_bytes=RESERVE_BYTES,
                segment_bytes=SEGMENT_BYTES,
                fetch_max_bytes=FETCH_BYTES,
                engine="inline",
                **TIMING,
            )
            transport = MemoryTransport(self._hub, Endpoint("replica", node_id))
            client: RaftClient[bytes] = RaftClient(config, transport=transport, random=random.Random(node_id))
            await client.start()
            self.clients[node_id] = client

    async def append(self) -> bool:
        """Append one value wherever somebody leads, until it is acknowledged; False, if the leader's disk is full."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for client in self.clients.values():
                    if client.leader_and_epoch().leader_id != client.node_id:
                        continue
                    value = self._value()
                    try:
                        self.epoch = (await client.append_one(value, timeout_ms=0)).epoch
                    except DiskFullError:
                        self.case.refused += 1
                        return False
                    except (NotLeaderError, OutcomeUnknownError):
                        continue
                    self.acknowledged.add(value)
                    return True
                await asyncio.sleep(0.02)

    async def append_at_once(self, count: int) -> None:
        """Append so many values together at one leader; each is acknowledged or not."""
        leader = await self.leader()
        epoch = leader.leader_and_epoch().epoch
        values = [self._value() for _ in range(count)]
        async with asyncio.timeout(PATIENCE_S):
            outcomes = await asyncio.gather(
                *(leader.append_one(value, epoch=epoch) for value in values), return_exceptions=True
            )
        for value, outcome in zip(values, outcomes, strict=True):
            if isinstance(outcome, Appended):
                self.acknowledged.add(value)
                self.epoch = outcome.epoch
            elif isinstance(outcome, ReplicaFailedError) or not isinstance(outcome, KraftError):
                self.case.bad.append(repr(outcome))

    def _value(self) -> bytes:
        self._number += 1
        return b"%d:" % self._number + os.urandom(VALUE_BYTES // 2) * 2

    async def leader(self) -> RaftClient[bytes]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for client in self.clients.values():
                    if client.leader_and_epoch().leader_id == client.node_id:
                        return client
                await asyncio.sleep(0.02)

    async def until(self, what: str, reached: Callable[[], bool]) -> None:
        """Wait; a wait in vain is told."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {PATIENCE_S:.0f} s")
            await asyncio.sleep(0.02)

    def cut_off(self, node_id: int) -> None:
        """Let no other replica reach this one."""
        self._hub.isolate(Endpoint("replica", node_id))

    def heal(self) -> None:
        """Let all replicas reach each other again."""
        self._hub.heal_all()

    def failures(self) -> None:
        """Name the replicas that have stopped themselves."""
        for client in self.clients.values():
            if (failure := client.status().failure) is not None:
                self.case.bad.append(failure)

    def losses(self) -> None:
        """Open all three directories again, and look for what was acknowledged."""
        for node_id, directory in self._directories.items():
            opened = open_directory(RaftConfig(node_id=node_id, directory=directory, disk_reserve_bytes=0))
            try:
                batches = [batch for batch in opened.log.scan() if not batch.is_control]
                values = {bytes(record.value or b"") for batch in batches for record in batch.records()}
            finally:
                opened.close()
            if lost := self.acknowledged - values:
                self.case.bad.append(f"replica {node_id} lacks {len(lost)} acknowledged records")


async def live(quorum: Quorum) -> None:
    """Fill disks, look, and make space again."""
    case = quorum.case
    await quorum.start()
    for _ in range(20):
        await quorum.append()
    leader = await quorum.leader()
    hit = [
        node_id for node_id in IDS if case.whose == "all" or (node_id == leader.node_id) == (case.whose == "leader")
    ][: 3 if case.whose == "all" else 1]
    if case.how == "ballast":
        writing = [asyncio.ensure_future(_append_for(quorum, 15)) for _ in range(WRITERS)]
        await _append_for(quorum, 4)
        for node_id in hit:
            fill(quorum._directories[node_id].parent, leave=0)
        await asyncio.gather(*writing)
    elif case.how == "lag":
        for node_id in hit:
            quorum.cut_off(node_id)
        for _ in range(BEHIND):
            await quorum.append()
        for node_id in hit:
            fill(quorum._directories[node_id].parent, leave=0)
        quorum.heal()
    else:
        for node_id in hit:
            fill(quorum._directories[node_id].parent, leave=4 << 20)
        if case.how == "backlog":
            await quorum.append_at_once(AT_ONCE)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not _is_full(quorum, hit):
            if not await quorum.append():
                break
        for node_id in hit:  # whoever has less than the leader is not full yet, and gets no more from it
            fill(quorum._directories[node_id].parent, leave=RESERVE_BYTES)
    await quorum.until("its disk is full, and it does not notice", lambda: _is_full(quorum, hit))
    await _live_on(quorum, hit)
    barrier = None
    if case.whose == "all":  # nobody can take the first record of the new leader's epoch, and it knows of no commit
        barrier = asyncio.ensure_future((await quorum.leader()).read_barrier(timeout_ms=int(PATIENCE_S * 1_000)))
        for _ in range(5):
            if await quorum.append():
                case.bad.append("all disks are full, and a record is taken")
        if barrier.done() and barrier.exception() is None:
            case.bad.append("a leader of which nobody has a record says what is committed")
    for node_id in hit:
        (quorum._directories[node_id].parent / BALLAST).unlink()
    await quorum.until("there is space, and it does not notice", lambda: not _is_full(quorum, IDS, any_of_them=True))
    if barrier is not None:
        await _passed(quorum, barrier)
    for _ in range(20):
        if not await quorum.append():
            case.bad.append("there is space, and an append is refused")
    await quorum.until("they do not come together", lambda: _is_alike(quorum))


async def _live_on(quorum: Quorum, hit: Sequence[int]) -> None:
    """While disks are full: records are refused by whose disk it is, reads are answered, elections are written."""
    case, leader = quorum.case, await quorum.leader()
    accepted = await quorum.append()
    if accepted and leader.node_id in hit and (await quorum.leader()) is leader:
        case.bad.append("the disk of the leader is full, and it takes a record")
    if not accepted and case.whose == "follower" and leader.node_id not in hit:
        case.bad.append("a follower's disk is full, and the leader refuses a record")
    leader = await quorum.leader()
    if case.whose != "all" or leader.leader_and_epoch().epoch == quorum.epoch:
        # Else there was an election of its own accord since the disks are full, and see below.
        await leader.read_barrier(timeout_ms=int(PATIENCE_S * 1_000))
    for _ in range(3):
        leader = await quorum.leader()
        epoch = leader.leader_and_epoch().epoch
        leader.resign(epoch)
        await quorum.until(
            "nobody is elected while disks are full",
            lambda epoch=epoch: any(
                client.leader_and_epoch().epoch > epoch and client.leader_and_epoch().leader_id == client.node_id
                for client in quorum.clients.values()
            ),
        )
        case.elections += 1
    if case.whose != "all":
        await (await quorum.leader()).read_barrier(timeout_ms=int(PATIENCE_S * 1_000))


async def _passed(quorum: Quorum, barrier: asyncio.Future[int]) -> None:
    """Wait until a reader that waited for space goes on; again, if its leader was replaced meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await barrier
                return
            except KraftError:
                await asyncio.sleep(0.01)
                barrier = asyncio.ensure_future(
                    (await quorum.leader()).read_barrier(timeout_ms=int(PATIENCE_S * 1_000))
                )


async def _append_for(quorum: Quorum, count: int) -> None:
    for _ in range(count):
        if not await quorum.append():
            return


def _is_full(quorum: Quorum, node_ids: Sequence[int], *, any_of_them: bool = False) -> bool:
    full = [quorum.clients[node_id].status().disk_full for node_id in node_ids]
    return any(full) if any_of_them else all(full)


def _is_alike(quorum: Quorum) -> bool:
    return len({client.log_end_offset() for client in quorum.clients.values()}) == 1


def fill(path: Path, *, leave: int) -> None:
    """Let somebody else take all space of a file system but for so much."""
    stats = os.statvfs(path)
    free = stats.f_bavail * stats.f_frsize
    with open(path / BALLAST, "ab", buffering=0) as ballast, contextlib.suppress(OSError):
        os.posix_fallocate(ballast.fileno(), ballast.tell(), max(1, free - max(leave, 64 << 10)))
        while not leave:
            ballast.write(bytes(4_096))


def try_case(top: Path, case: Case) -> Case:
    """Make disks and a quorum on them, and see."""
    began = time.monotonic()
    place = Path(tempfile.mkdtemp(dir=top))
    kind = PowerDisk if case.system == "ext4" else MemoryDisk
    disks = [kind(place, f"disk{node_id}", size=DISK_BYTES) for node_id in IDS]
    try:
        for disk in disks:
            disk.mount()
        directories = {node_id: disk.path / "replica" for node_id, disk in zip(IDS, disks, strict=True)}
        for node_id, directory in directories.items():
            format_directory(directory, node_id=node_id, cluster_id="full", static_voters=list(IDS))
        quorum = Quorum(directories, case)

        async def run() -> None:
            try:
                await live(quorum)
            finally:
                quorum.failures()
                for client in quorum.clients.values():
                    with contextlib.suppress(KraftError):
                        await client.shutdown(timeout_ms=0)

        try:
            asyncio.run(run())
        except (KraftError, TimeoutError) as error:
            case.bad.append(f"{type(error).__name__}: {error}")
        quorum.losses()
        case.acknowledged = len(quorum.acknowledged)
    finally:
        for disk in disks:
            disk.free()
    case.seconds = time.monotonic() - began
    return case


def main(arguments: Sequence[str]) -> int:
    """Try all cases; 0 if all is well."""
    parser = argparse.ArgumentParser(
        prog="full", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--directory", type=Path, default=None, help="where the images go (temporary)")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    why = why_impossible()
    if why is not None:
        print(f"FULL DISKS SKIPPED: {why}", file=sys.stderr, flush=True)
        return 1 if os.environ.get("CI") == "true" else 0
    if os.environ.get(NAMESPACE) is None:
        return subprocess.run(in_a_namespace(__spec__.name, arguments), check=False).returncode
    logging.disable(logging.CRITICAL)
    cases = []
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="kraftlib-full-") as top:
        for system in ("ext4", "tmpfs"):
            for whose in ("leader", "follower", "all"):
                for how in ("appends", "backlog", "ballast", *(["lag"] if whose == "follower" else [])):
                    if options.only not in Case(system, whose, how).name:
                        continue
                    cases.append(try_case(Path(top), Case(system, whose, how)))
                    print(f"{cases[-1].name}: {cases[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    if options.output == "json":
        print(json.dumps([{"name": case.name, **attrs.asdict(case)} for case in cases]))
    else:
        print(f"{'':<34} {'acknowledged':>12} {'refused':>8} {'elections':>9} {'s':>4}")
        for case in cases:
            print(
                f"{case.name:<34} {case.acknowledged:>12,} {case.refused:>8} {case.elections:>9} {case.seconds:>4.0f}"
                + "".join(f"\n  BAD  {bad}" for bad in case.bad)
            )
    return int(any(case.bad for case in cases))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
