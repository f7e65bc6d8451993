"""Quorums of three with the load inside the leader: ours, Kafka's raft client, and Go's libraries.

* `kraftlib`: three replicas, inline engine, with Kafka's own election timeout.
* `kafka`: Kafka's raft client in a small Java program without a controller on top (`peer/Peer.java`, order `bench`),
  with `controller.quorum.append.linger.ms` 0, and once more with its default of 25.
* `etcd-raft`, `hashicorp`, `dragonboat`: go.etcd.io/raft with asynchronous storage writes over etcd's own log;
  hashicorp/raft over raft-wal; dragonboat over tan. One program (`raft_libraries/`), built by `go build` once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

from kraftlib.cli.cluster import POLL_S, Cluster
from tests.interop.jars import FetchError, MissingToolsError, cache, once, say
from tests.interop.lab import Lab, Quorum
from tests.interop.processes import PATIENCE_S, free_ports, wait_for

SIZE: Final = 100
OURS: Final = "kraftlib"
KAFKA: Final = "kafka"
LIBRARIES: Final = ("etcd-raft", "hashicorp", "dragonboat")
HEAP_MB: Final = 512
SOURCES: Final = Path(__file__).with_name("raft_libraries")
BUILD_TIMEOUT_S: Final = 1_800
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Contender(Protocol):
    """A quorum of three."""

    name: str
    is_killed: bool
    """Whether its failover is measured."""

    async def leader(self) -> tuple[int, Sequence[int]]:
        """Return the process of the leader, and those of the others."""
        ...

    async def load(self, callers: int, milliseconds: int) -> Mapping[str, Any]:
        """Put a closed loop on the leader; return `commits_per_s`, `p50_us`, `p99_us`."""
        ...

    async def fail_over(self) -> float:
        """Kill the leader; return how many ms it took until another one led; start the killed one again."""
        ...


def cpu_s(process: int) -> float:
    """Return the CPU time of a process so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


async def measured(contender: Contender, callers: int, milliseconds: int) -> dict[str, float]:
    """Put load on a quorum; add the CPU time of a commit in µs: of the leader, and the mean of the others."""
    leader, others = await contender.leader()
    before = [cpu_s(process) for process in (leader, *others)]
    found = await contender.load(callers, milliseconds)
    of_leader, *of_others = (cpu_s(process) - then for process, then in zip((leader, *others), before, strict=True))
    commits = found["commits_per_s"] * milliseconds / 1_000
    return {
        **{name: found[name] for name in ("commits_per_s", "p50_us", "p99_us")},
        "leader_cpu_us": of_leader / commits * 1e6,
        "follower_cpu_us": sum(of_others) / len(of_others) / commits * 1e6,
    }


class Ours:
    """Three replicas of kraftlib."""

    name = OURS
    is_killed = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def leader(self) -> tuple[int, Sequence[int]]:
        leader, _ = await self._cluster.leader()
        voters = [voter for voter, _ in await self._cluster.statuses()]
        return leader.pid, [voter.pid for voter in voters if voter is not leader]

    async def load(self, callers: int, milliseconds: int) -> Mapping[str, Any]:
        leader, _ = await self._cluster.leader()
        seconds = milliseconds / 1_000
        load = {"callers": callers, "seconds": seconds, "warm_up_s": 0, "size": SIZE, "profile": False}
        result: Mapping[str, Any] = await leader.ask("load", load, timeout_ms=milliseconds + 30_000)
        return result

    async def fail_over(self) -> float:
        leader, epoch = await self._cluster.leader()
        began = time.monotonic()
        await self._cluster.kill(leader.number)
        await self._cluster.leader(after_epoch=epoch)
        took_ms = (time.monotonic() - began) * 1_000
        await self._cluster.start(leader.number)
        return took_ms


class Kafkas:
    """Three raft clients of Kafka, with a compiler that may take its time."""

    def __init__(self, lab: Lab, linger_ms: int) -> None:
        self.name = f"Kafka {lab.release.version}, linger {linger_ms} ms"
        self.is_killed = not linger_ms
        self._quorum: Quorum = lab.static(peers=[1, 2, 3], properties={"controller.quorum.append.linger.ms": linger_ms})
        for node in self._quorum.nodes.values():
            tuned = ("-XX:Tiered", "-XX:+UseSerial", "-Xmx")
            node.command = [word for word in node.command if not word.startswith(tuned)]
            node.command.insert(1, f"-Xmx{HEAP_MB}m")
        self._quorum.start()

    async def leader(self) -> tuple[int, Sequence[int]]:
        leader_id = (await asyncio.to_thread(self._quorum.leader))["leader_id"]
        nodes = self._quorum.nodes
        return nodes[leader_id].pid, [node.pid for number, node in nodes.items() if number != leader_id]

    async def load(self, callers: int, milliseconds: int) -> Mapping[str, Any]:
        return await asyncio.to_thread(self._load, callers, milliseconds)

    async def fail_over(self) -> float:
        return await asyncio.to_thread(self._fail_over)

    def _load(self, callers: int, milliseconds: int) -> Mapping[str, Any]:
        leader = self._quorum.nodes[self._quorum.leader()["leader_id"]]
        result: Mapping[str, Any] = leader.ask(  # type: ignore[union-attr]
            "bench", f"{callers} {milliseconds} {SIZE}", timeout_s=milliseconds / 1_000 + 40
        )
        if "error" in result:
            raise RuntimeError(f"{self.name}: {result['error']}")
        return result

    def _fail_over(self) -> float:
        before = self._quorum.leader()
        leader_id, epoch = before["leader_id"], before["epoch"]
        began = time.monotonic()
        self._quorum.nodes[leader_id].kill()

        def somebody_leads() -> bool:
            statuses = [replica.replica_status() for replica in self._quorum.replicas]
            return any(status["role"] == "leader" and status["epoch"] > epoch for status in statuses)

        wait_for("the next leader", somebody_leads, every_s=POLL_S)
        took_ms = (time.monotonic() - began) * 1_000
        self._quorum.start(leader_id)
        return took_ms


class Library:
    """Three replicas of one of Go's libraries. They end with the standard input that they are given."""

    is_killed = True

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self._home = home
        self._addresses = ",".join(f"127.0.0.1:{port}" for port in free_ports(3))
        self._replicas: dict[int, subprocess.Popen[bytes]] = {}
        for number in (1, 2, 3):
            self._start(number)

    async def leader(self) -> tuple[int, Sequence[int]]:
        number, _ = await asyncio.to_thread(self._leader)
        return self._replicas[number].pid, [each.pid for other, each in self._replicas.items() if other != number]

    async def load(self, callers: int, milliseconds: int) -> Mapping[str, Any]:
        number, _ = await asyncio.to_thread(self._leader)
        return await asyncio.to_thread(self._ask, number, f"bench {callers} {milliseconds} {SIZE}")

    async def fail_over(self) -> float:
        return await asyncio.to_thread(self._fail_over)

    def close(self) -> None:
        """End all three."""
        for number in self._replicas:
            self._kill(number)

    def _start(self, number: int) -> None:
        command = [program(), self.name, str(number), self._home / str(number), self._addresses]
        pipe = subprocess.PIPE
        with (self._home / f"{number}.log").open("ab") as log:
            self._replicas[number] = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, bufsize=0)

    def _kill(self, number: int) -> None:
        replica = self._replicas[number]
        replica.kill()
        for stream in (replica.stdin, replica.stdout):
            if stream is not None:
                stream.close()
        replica.wait(PATIENCE_S)

    def _ask(self, number: int, order: str) -> Mapping[str, Any]:
        replica = self._replicas[number]
        if replica.stdin is None or replica.stdout is None:
            raise RuntimeError(f"{self.name} {number} has no pipes")
        answer = b""
        with contextlib.suppress(BrokenPipeError):
            replica.stdin.write(f"{order}\n".encode())
            answer = line(replica.stdout)
        if not answer:
            raise RuntimeError(f"{self.name} {number} does not answer; its log: {self._home / f'{number}.log'}")
        result: dict[str, Any] = json.loads(answer)
        if "error" in result:
            raise RuntimeError(f"{self.name}: {result['error']}")
        return result

    def _leader(self, after_term: int = 0) -> tuple[int, int]:
        def found() -> tuple[int, int] | None:
            for number, replica in self._replicas.items():
                if replica.returncode is None:
                    status = self._ask(number, "status")
                    if status["leads"] and status["term"] > after_term:
                        return number, status["term"]
            return None

        return wait_for(f"a leader of {self.name}", found, every_s=POLL_S) or (0, 0)

    def _fail_over(self) -> float:
        number, term = self._leader()
        began = time.monotonic()
        self._kill(number)
        self._leader(after_term=term)
        took_ms = (time.monotonic() - began) * 1_000
        self._start(number)
        return took_ms


def line(stream: IO[bytes]) -> bytes:
    """Return the next line of an unbuffered pipe; less at its end, or when nothing comes for long."""
    found = b""
    while not found.endswith(b"\n") and select.select([stream], [], [], PATIENCE_S)[0]:
        more = os.read(stream.fileno(), 4_096)
        if not more:
            break
        found += more
    return found


def program() -> Path:
    """Return the program of Go's libraries. Raises: MissingToolsError, FetchError."""
    sources = sorted([*SOURCES.glob("*.go"), *SOURCES.glob("go.*")])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    home = cache() / f"raft-libraries-{digest}"
    once(home, _build)
    return home / "library"


def _build(place: Path) -> None:
    if shutil.which("go") is None:
        raise MissingToolsError("Go's libraries of Raft are built with Go: install it (Debian: apt install golang-go)")
    say("building Go's libraries of Raft: once, some minutes")
    command = ["go", "build", "-o", str(place / "library"), "."]
    built = subprocess.run(command, cwd=SOURCES, check=False, timeout=BUILD_TIMEOUT_S, stdout=sys.stderr)
    if built.returncode:
        raise FetchError(f"`{' '.join(command)}` ended with {built.returncode}; its own words are above")
