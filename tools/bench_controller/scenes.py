"""One function for each scene, and in it ours and Kafka's in turns. Figures go into `found`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.types import Endpoint, new_uuid, uuid_text
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from tools.bench.machine import free_port
from tools.bench_controller import broker
from tools.bench_controller.broker import Connection, FailedError
from tools.bench_controller.controllers import Kind, Node, settled_cpu_s
from tools.bench_controller.metadata import FIRST_BROKER, REPLICAS, epoch_of, write_checkpoint

CALLERS: Final = (1, 64)
TOPIC_PARTITIONS: Final = 1_000
BEAT_S: Final = 2.0
"""The interval of a broker's heartbeats (`broker.heartbeat.interval.ms`)."""
RETRY_S: Final = 0.002
START_S: Final = 600.0

Figures = dict[str, Any]


@attrs.frozen(kw_only=True)
class Sizes:
    """The sizes of a run."""

    brokers: int
    partitions: int
    fenced: int
    beating: int
    loaded: tuple[int, ...]
    failovers: int
    seconds: float
    rounds: int


def say(text: str) -> None:
    """Tell the person at the terminal what goes on."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Quorum:
    """Controllers of one kind, running."""

    def __init__(self, kind: Kind, home: Path, count: int, checkpoint: Path | None = None) -> None:
        self.name = kind.name
        self.cluster_id = uuid_text(new_uuid())
        self.epochs: dict[int, int] = {}
        """Of the simulated brokers."""
        home.mkdir(parents=True)
        places = {number: Endpoint("127.0.0.1", free_port()) for number in range(1, count + 1)}
        self.nodes: Mapping[int, Node] = {number: kind.node(number, home, places, self.cluster_id) for number in places}
        for node in self.nodes.values():
            if checkpoint is not None:
                node.load(checkpoint)

    def start(self) -> None:
        """Start all."""
        for node in self.nodes.values():
            node.start()

    def kill(self) -> None:
        """End all."""
        for node in self.nodes.values():
            node.kill()

    @property
    def one(self) -> Node:
        """The only node."""
        (node,) = self.nodes.values()
        return node

    async def connect(self) -> Connection:
        """Connect to the only node."""
        return await Connection.to(self.one.place)

    async def active(self, request: Any, nodes: Sequence[Node] | None = None) -> Node:
        """Return the node that answers a request without an error first; all of them are asked until then."""
        asking = [asyncio.create_task(_served(node, request)) for node in nodes or self.nodes.values()]
        try:
            async with asyncio.timeout(START_S):
                done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def with_brokers(self, count: int) -> None:
        """Register so many brokers, some at once."""
        ids = iter(range(FIRST_BROKER, FIRST_BROKER + count))

        async def some() -> None:
            connection = await self.connect()
            for broker_id in ids:
                self.epochs[broker_id] = await broker.register(connection, self.cluster_id, broker_id)
            connection.close()

        await asyncio.gather(*(some() for _ in range(32)))


async def _served(node: Node, request: Any) -> Node:
    while True:
        node.check()
        connection = None
        try:
            connection = await Connection.to(node.place)
            answer = await connection.ask(request)
            if not answer.error_code:
                return node
        except OSError:
            pass
        finally:
            if connection is not None:
                connection.close()
        await asyncio.sleep(RETRY_S)


@contextlib.asynccontextmanager
async def pair(kinds: Sequence[Kind], home: Path, brokers: int) -> AsyncIterator[list[Quorum]]:
    """Start one controller of each kind, and register brokers with it."""
    started: list[Quorum] = []
    try:
        for number, kind in enumerate(kinds):
            say(f"  starting {kind.name}, {brokers} brokers")
            quorum = Quorum(kind, home / str(number), 1)
            started.append(quorum)
            quorum.start()
            await quorum.active(broker.registration(quorum.cluster_id, FIRST_BROKER - 1))  # it never serves
            await quorum.with_brokers(brokers)
        yield started
    finally:
        for quorum in started:
            quorum.kill()
        shutil.rmtree(home, ignore_errors=True)


_METADATA: Final = DescribeQuorumRequest.TopicData(
    topic_name="__cluster_metadata", partitions=(DescribeQuorumRequest.PartitionData(),)
)


# Topics and partitions ----------------------------------------------------------------------------


async def creations(kinds: Sequence[Kind], home: Path, sizes: Sizes, found: Figures) -> None:
    """Topics a second; a cluster of many partitions; a broker that is fenced."""
    names = map("t-{}".format, itertools.count())
    async with pair(kinds, home, sizes.brokers) as quorums:
        for quorum in quorums:
            say(f"  warming up {quorum.name}")
            await _rate(quorum, CALLERS[-1], sizes.seconds, names)
        for callers in CALLERS:
            rows = found[f"topics created, {callers} callers"] = {}
            trials: dict[str, list[Figures]] = {}
            for number in range(sizes.rounds):
                for quorum in quorums:
                    say(f"  topics, {callers} callers, round {number + 1} of {sizes.rounds}: {quorum.name}")
                    trials.setdefault(quorum.name, []).append(await _rate(quorum, callers, sizes.seconds, names))
                    rows[quorum.name] = _median(trials[quorum.name])
        many = found[f"{sizes.partitions:,} partitions created over {sizes.brokers} brokers"] = {}
        fence = found[f"a broker that leads {sizes.fenced:,} partitions is fenced"] = {}
        for quorum in quorums:
            say(f"  creating {sizes.partitions:,} partitions: {quorum.name}")
            many[quorum.name] = await _create_many(quorum, sizes.partitions, names)
            say(f"  fencing a broker that leads {sizes.fenced:,} partitions: {quorum.name}")
            fence[quorum.name] = await _fence(quorum, sizes.fenced, names)


async def _rate(quorum: Quorum, callers: int, seconds: float, names: Any) -> Figures:
    loop = asyncio.get_running_loop()
    times: list[float] = []
    answers: list[tuple[Any, bytes]] = []
    connections = [await quorum.connect() for _ in range(callers)]

    async def call(connection: Connection) -> None:
        while loop.time() < end:
            request = broker.topic(next(names), 1, REPLICAS)
            frame, began = broker.framed(request), time.perf_counter()
            answer = await connection.exchange(frame)
            times.append((time.perf_counter() - began) * 1_000)
            answers.append((request, answer))

    began_s, cpu_s, end = time.perf_counter(), quorum.one.cpu_s(), loop.time() + seconds
    await asyncio.gather(*map(call, connections))
    elapsed_s, cpu_s = time.perf_counter() - began_s, quorum.one.cpu_s() - cpu_s
    for connection in connections:
        connection.close()
    for request, answer in answers[:: max(1, len(answers) // 100)]:
        broker.check_created(broker.answered(request, answer))
    return {
        "per_s": len(times) / elapsed_s,
        "p50_ms": _percentile(times, 50),
        "p99_ms": _percentile(times, 99),
        "cpu_us_each": cpu_s / len(times) * 1e6,
    }


async def _create_many(quorum: Quorum, partitions: int, names: Any) -> Figures:
    connection, node = await quorum.connect(), quorum.one
    resident, live = node.resident_mib(), node.live_mib()
    cpu_s, began = node.cpu_s(), time.perf_counter()
    for first in range(0, partitions, TOPIC_PARTITIONS):
        count = min(TOPIC_PARTITIONS, partitions - first)
        broker.check_created(await connection.ask(broker.topic(next(names), count, REPLICAS)))
    elapsed_s, cpu_s = time.perf_counter() - began, node.cpu_s() - cpu_s
    connection.close()
    return {
        "seconds": elapsed_s,
        "cpu_s": cpu_s,
        "resident_mib": node.resident_mib() - resident,
        "live_mib": node.live_mib() - live,
    }


async def _fence(quorum: Quorum, partitions: int, names: Any) -> Figures:
    """Have one broker lead partitions, and fence it; the answer comes when all that follows from it is committed."""
    connection, node, first = await quorum.connect(), quorum.one, FIRST_BROKER
    others = [broker_id for broker_id in quorum.epochs if broker_id != first]
    for begin in range(0, partitions, TOPIC_PARTITIONS):
        count = min(TOPIC_PARTITIONS, partitions - begin)
        replicas = [(first, others[number % len(others)]) for number in range(count)]
        broker.check_created(await connection.ask(broker.topic(next(names), 0, 0, replicas)))
    before = await _end_offset(connection)
    cpu_s, began = node.cpu_s(), time.perf_counter()
    answer = await connection.ask(broker.heartbeat(first, quorum.epochs[first], want_fence=True))
    elapsed_s, cpu_s = time.perf_counter() - began, node.cpu_s() - cpu_s
    written = await _end_offset(connection) - before
    connection.close()
    if answer.error_code or not answer.is_fenced or written < partitions:
        raise FailedError(f"{quorum.name}: {answer!r}, and {written} records for {partitions} partitions")
    return {"seconds": elapsed_s, "cpu_s": cpu_s, "records": written}


async def _end_offset(connection: Connection) -> int:
    answer = await connection.ask(DescribeQuorumRequest(topics=(_METADATA,)))
    return int(answer.topics[0].partitions[0].high_watermark)


# Heartbeats ---------------------------------------------------------------------------------------


async def heartbeats(kinds: Sequence[Kind], home: Path, sizes: Sizes, found: Figures) -> None:
    """The share of a processor that heartbeats take, and what they do to the commits of others."""
    rows = found[f"heartbeats of {sizes.beating} brokers"] = {}
    async with pair(kinds, home, sizes.beating) as quorums:
        for quorum in quorums:
            say(f"  heartbeats of {sizes.beating} brokers: {quorum.name}")
            await _commits(quorum, sizes.seconds)
            idle = await _commits(quorum, sizes.seconds)
            async with _beating(quorum) as beats:
                cpu_s, began, sent = quorum.one.cpu_s(), time.perf_counter(), beats[0]
                await asyncio.sleep(max(sizes.seconds, 2 * BEAT_S))
                share = (quorum.one.cpu_s() - cpu_s) / (time.perf_counter() - began)
                sent = beats[0] - sent
                busy = await _commits(quorum, sizes.seconds)
            idle += await _commits(quorum, sizes.seconds)
            rows[quorum.name] = {
                "cores": share,
                "beats": sent,
                "idle_p50_ms": _percentile(idle, 50),
                "idle_p99_ms": _percentile(idle, 99),
                "busy_p50_ms": _percentile(busy, 50),
                "busy_p99_ms": _percentile(busy, 99),
                "p99_ratio": _percentile(busy, 99) / max(_percentile(idle, 99), 0.001),
            }


async def _commits(quorum: Quorum, seconds: float) -> list[float]:
    """Commit one small record after the other; return the ms of each."""
    connection, end = await quorum.connect(), time.perf_counter() + seconds
    frame = broker.framed(broker.small_write(FIRST_BROKER, quorum.epochs[FIRST_BROKER]))
    times: list[float] = []
    while (began := time.perf_counter()) < end:
        await connection.exchange(frame)
        times.append((time.perf_counter() - began) * 1_000)
    connection.close()
    return times


@contextlib.asynccontextmanager
async def _beating(quorum: Quorum) -> AsyncIterator[list[int]]:
    """Have every broker send heartbeats over a connection of its own; the list has the number of answers."""
    answered = [0]

    async def beat(number: int, broker_id: int, epoch: int) -> None:
        connection, frame = await quorum.connect(), broker.framed(broker.heartbeat(broker_id, epoch))
        await asyncio.sleep(BEAT_S * number / len(quorum.epochs))
        while True:
            await connection.exchange(frame)
            answered[0] += 1
            await asyncio.sleep(BEAT_S)

    tasks = [asyncio.create_task(beat(number, *one)) for number, one in enumerate(quorum.epochs.items())]
    try:
        await asyncio.sleep(BEAT_S)
        yield answered
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [one for one in results if not isinstance(one, asyncio.CancelledError)]
        if failed:
            raise FailedError(f"{quorum.name}: {len(failed)} brokers could not send heartbeats: {failed[0]!r}")


# Many partitions in a snapshot --------------------------------------------------------------------


async def loads(kinds: Sequence[Kind], home: Path, sizes: Sizes, found: Figures) -> None:
    """A controller starts on a snapshot: from the start of its process to the first write that is answered."""
    request = broker.small_write(FIRST_BROKER, epoch_of(FIRST_BROKER))
    for partitions in sizes.loaded:
        say(f"  writing a snapshot of {partitions:,} partitions")
        checkpoint = await asyncio.to_thread(write_checkpoint, home, partitions=partitions, brokers=sizes.brokers)
        rows = found[f"a snapshot of {partitions:,} partitions is loaded"] = {}
        for number, kind in enumerate(kinds):
            say(f"  loading it: {kind.name}")
            place = home / f"{partitions}-{number}"
            quorum = Quorum(kind, place, 1, checkpoint)
            try:
                began = time.perf_counter()
                quorum.start()
                node = await quorum.active(request)
                elapsed_s, cpu_s = time.perf_counter() - began, node.cpu_s()
                await asyncio.to_thread(settled_cpu_s, [node])
                rows[kind.name] = {
                    "seconds": elapsed_s,
                    "cpu_s": cpu_s,
                    "resident_mib": node.resident_mib(),
                    "live_mib": await asyncio.to_thread(node.live_mib),
                }
            finally:
                quorum.kill()
                shutil.rmtree(place, ignore_errors=True)
        checkpoint.unlink()


async def failovers(kinds: Sequence[Kind], home: Path, sizes: Sizes, found: Figures) -> None:
    """Three controllers on a snapshot; the active one is killed again and again, until another one answers a write."""
    partitions = max(sizes.loaded)
    say(f"  writing a snapshot of {partitions:,} partitions")
    checkpoint = await asyncio.to_thread(write_checkpoint, home, partitions=partitions, brokers=sizes.brokers)
    request = broker.small_write(FIRST_BROKER, epoch_of(FIRST_BROKER))
    rows = found[f"failover with {partitions:,} partitions"] = {}
    for number, kind in enumerate(kinds):
        quorum = Quorum(kind, home / str(number), 3, checkpoint)
        times = []
        try:
            say(f"  starting three: {kind.name}")
            quorum.start()
            nodes = list(quorum.nodes.values())
            for kill in range(sizes.failovers):
                active = await quorum.active(request)
                await asyncio.to_thread(settled_cpu_s, nodes)
                others = [node for node in nodes if node is not active]
                began = time.perf_counter()
                active.kill()
                await quorum.active(request, others)
                times.append((time.perf_counter() - began) * 1_000)
                say(f"  kill {kill + 1} of {sizes.failovers}: {times[-1]:.0f} ms, {kind.name}")
                active.start()
            rows[kind.name] = {
                "p50_ms": statistics.median(times),
                "min_ms": min(times),
                "max_ms": max(times),
                "kills": len(times),
            }
        finally:
            quorum.kill()
            shutil.rmtree(home / str(number), ignore_errors=True)
    checkpoint.unlink()


def _percentile(times: Sequence[float], percent: int) -> float:
    return statistics.quantiles(times, n=100)[percent - 1] if len(times) > 1 else sum(times)


def _median(rows: Sequence[Figures]) -> Figures:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


SCENES: Final = {"create": creations, "heartbeats": heartbeats, "load": loads, "failover": failovers}
