"""Watches that wait look at what is new, and are woken by what they select alone."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from kraftlib.coordination.access import BEFORE_ALL, STALE, AtLeast, Gone
from kraftlib.coordination.commands import encode
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.messages import Selector, Watched
from kraftlib.coordination.net.client import connect
from kraftlib.errors import ReplicaFailedError, TimedOutError
from kraftlib.runtime.committed import CommittedRecord
from tests.coordination.net.test_watching import rows
from tests.coordination.net.ways import EVERYTHING, Caller, question, replicas, value
from tests.runtime.quorum import PATIENCE_S, until

IDLE = encode(Selector(watched=Watched.KEY, name="nobody writes it"))


class Counting(ServiceMachine):
    """Notes each look of a watch that never gets anything: from where on, at most how many, and up to where."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[tuple[int, int, int]] = []

    def changes(self, selector: bytes, since: int, *, most: int) -> Sequence[tuple[int, bytes]] | Gone:
        if selector == IDLE:
            self.looks.append((since, most, self.applied))
        return super().changes(selector, since, most=most)


async def test_idle_watches_look_once_at_each_record_together_and_are_not_woken() -> None:
    machine = Counting()
    async with replicas(1, machine=lambda node_id: machine) as quorum:
        access = quorum.running[1]
        caller = await Caller(access).begin()
        for number in range(10):
            await caller.put("old", b"%d" % number)
        idle = [asyncio.create_task(anext(aiter(access.watch(IDLE, BEFORE_ALL)))) for _ in range(20)]
        busy = aiter(access.watch(EVERYTHING, machine.applied))
        await until(lambda: len(machine.looks) == len(idle))
        first = machine.looks.copy()
        for number in range(30):
            done = await caller.put("key", b"%d" % number)
            assert (await anext(busy)).offset == done.offset
        later = machine.looks[len(first) :]
        for watch in idle:
            watch.cancel()
        await asyncio.wait(idle)

        assert {since for since, _, _ in first} == {BEFORE_ALL}
        assert {most for _, most, _ in later} == {1}, "none of them was woken"
        assert 0 < len(later) <= 60, "one look for all of them"
        ends = [first[-1][2], *(applied for _, _, applied in later)]
        assert [since for since, _, _ in later] == ends[:-1]


class Frail(ServiceMachine):
    """Cannot apply what is poisoned."""

    def apply(self, record: CommittedRecord) -> bytes:
        if b"poison" in bytes(record.value):
            raise ValueError("poisoned")
        return super().apply(record)


async def test_where_the_machine_has_failed_every_watch_and_query_says_so_and_a_client_goes_elsewhere() -> None:
    async with replicas(machine=lambda node_id: Frail() if node_id == 1 else None) as quorum:
        frail = quorum.running[1]
        async with connect([quorum.endpoint(2)]) as writer, connect([quorum.endpoint(1)]) as stuck:
            caller = await Caller(writer).begin()
            begun = await caller.put("key", b"")
            waiting = asyncio.create_task(anext(aiter(frail.watch(IDLE, BEFORE_ALL))))
            await value(frail, "key", consistency=AtLeast(begun.offset))
            await caller.put("key", b"poison")
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(ReplicaFailedError, match="poisoned"):
                    await waiting
                for _ in range(3):
                    with pytest.raises(ReplicaFailedError, match="poisoned"):
                        await anext(aiter(frail.watch(EVERYTHING, BEFORE_ALL)))
                    with pytest.raises(ReplicaFailedError, match="poisoned"):
                        await frail.query(question("key"), consistency=STALE, timeout_ms=1_000)
            with pytest.raises(TimedOutError, match="within 300 ms"):
                await stuck.query(question("key"), consistency=STALE, timeout_ms=300)
        async with connect(quorum.servers) as client, asyncio.timeout(PATIENCE_S):
            changes = aiter(client.watch(EVERYTHING, begun.offset))
            assert rows(await anext(changes)) == [("key", b"poison")]


async def test_a_watch_that_was_left_leaves_nothing_behind_when_the_replica_closes() -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    async with replicas(1, engine="inline") as quorum:
        access = quorum.running[1]
        await (await Caller(access).begin()).add("sum")
        watching = asyncio.create_task(anext(aiter(access.watch(IDLE, BEFORE_ALL))))
        await value(access, "sum")
        watching.cancel()
        await asyncio.wait([watching])
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_a_query_that_has_given_up_is_forgotten() -> None:
    async with replicas(1) as quorum:
        access: Any = quorum.running[1]
        await (await Caller(access).begin()).add("sum")
        for _ in range(100):
            with pytest.raises(TimedOutError):
                await access.query(question("sum"), consistency=AtLeast(2**60), timeout_ms=1)
        assert len(access.client._engine.node.applier.offset_waiters) < 10


class Interleaved(ServiceMachine):
    """Has its state replaced in the midst of a look, if there is one meanwhile, as a switch of threads may."""

    def __init__(self) -> None:
        super().__init__()
        self.is_restoring, self.may_restore, self.is_restored = (threading.Event() for _ in range(3))

    def restore(self, values: Iterable[bytes]) -> None:
        parts = list(values)
        self.is_restoring.set()
        self.may_restore.wait(PATIENCE_S)
        super().restore(parts)
        self.is_restored.set()

    def _meanwhile(self) -> None:
        if self.is_restoring.is_set() and not self.is_restored.is_set():
            self.may_restore.set()
            self.is_restored.wait(PATIENCE_S)

    def changes(self, selector: bytes, since: int, *, most: int) -> Sequence[tuple[int, bytes]] | Gone:
        found = super().changes(selector, since, most=most)
        self._meanwhile()
        return found

    def query(self, question: bytes) -> bytes:
        self._meanwhile()
        return super().query(question)


async def test_no_watch_and_no_query_looks_at_a_machine_that_loads_a_snapshot() -> None:
    """A watch would lose changes: its look would see the old state, and go on from where the new one ends."""
    lives = [Interleaved(), Interleaved()]
    before, machine = lives
    async with replicas(1, machine=lambda node_id: lives.pop(0), engine="inline") as quorum:
        caller = await Caller(quorum.running[1]).begin()
        first = await caller.put("first", b"1")
        second = await caller.put("second", b"2")
        await quorum.running[1].client.create_snapshot()
        await quorum.kill(1)
        await quorum.start(1)
        access = quorum.running[1]
        await until(machine.is_restoring.is_set)
        watching = asyncio.create_task(anext(aiter(access.watch(EVERYTHING, first.offset))))
        asking = asyncio.create_task(access.query(question("second"), consistency=STALE, timeout_ms=20_000))
        for _ in range(10):
            await asyncio.sleep(0)
        machine.may_restore.set()

        assert rows(await watching) == [("second", b"2")]
        offset, _ = await asking
        assert offset >= second.offset == before.applied
