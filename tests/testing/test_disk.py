"""The simulated disk: one thing at a time, in time, and honest about what survives."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.testing.clock import Timeline
from kraftlib.testing.disk import InjectedStorageError, SimulatedDisk, SimulatedElections, SimulatedLog
from kraftlib.types import ElectionState
from tests.testing.logs import batch


class Observer:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def appended(self, batches: Any) -> None:
        self.told.append(("appended", len(batches)))

    def flushed(self, end_offset: int) -> None:
        self.told.append(("flushed", end_offset))

    def truncated(self, end_offset: int) -> None:
        self.told.append(("truncated", end_offset))

    def installed(self, snapshot_id: Any) -> None:
        self.told.append(("installed", snapshot_id))

    def stored(self, snapshot_id: Any) -> None:
        self.told.append(("stored", snapshot_id))

    def persisted(self, election: ElectionState) -> None:
        self.told.append(("persisted", election.epoch))


class Machine:
    """A disk with a log and an election store on it."""

    def __init__(self, seed: int = 1) -> None:
        self.timeline = Timeline()
        self.disk = SimulatedDisk(self.timeline, random.Random(seed))
        self.observer = Observer()
        self.stored = MemoryReplicatedLog()
        self.log = SimulatedLog(self.stored, self.disk, self.observer, random.Random(seed))
        self.store = MemoryQuorumStateStore()
        self.elections = SimulatedElections(self.store, self.disk, self.observer)
        self.done: list[tuple[Any, BaseException | None]] = []

    def then(self, result: Any, error: BaseException | None) -> None:
        self.done.append((result, error))

    def write(self, epoch: int) -> None:
        self.disk.run(lambda: self.elections.write(ElectionState(epoch=epoch), kraft_version=0), self.then)

    def run(self) -> None:
        self.timeline.run(self.timeline.now_us + 10**9, lambda: False)


def test_a_flush_vouches_for_what_was_there_when_it_began() -> None:
    machine = Machine()
    machine.log.append([batch(0, 1)])
    machine.disk.flush(machine.log, machine.then)
    machine.log.append([batch(1, 1)])
    assert machine.log.flushed_offset == 0
    machine.run()

    assert machine.done == [(1, None)]
    assert (machine.log.flushed_offset, machine.log.end_offset, machine.log.start_offset) == (1, 2, 0)
    assert machine.observer.told == [("appended", 1), ("appended", 1), ("flushed", 1)]


def test_one_thing_is_done_after_the_other() -> None:
    machine = Machine()
    for epoch in (1, 2, 3):
        machine.write(epoch)
    machine.disk.run(lambda: machine.done.append(("asked in between", None)), machine.then)
    machine.run()

    assert machine.observer.told == [("persisted", 1), ("persisted", 2), ("persisted", 3)]
    assert [result for result, _ in machine.done] == [None, None, None, "asked in between", None]
    assert machine.disk.jobs_done == 4


def test_what_is_asked_for_by_a_result_comes_after_what_waits() -> None:
    """The executor begins its next flush when it hears of the last one."""
    machine, order = Machine(), []
    machine.disk.run(lambda: order.append(1), lambda *_: machine.disk.run(lambda: order.append(3), machine.then))
    machine.disk.run(lambda: order.append(2), machine.then)
    machine.run()

    assert order == [1, 2, 3]


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_during_the_write_of_an_election_leaves_the_old_one_or_the_new_one(seed: int) -> None:
    machine = Machine(seed)
    machine.write(1)
    machine.run()
    machine.write(2)
    machine.disk.lose_power()
    machine.run()
    left = machine.store.crash(random.Random(seed)).read()

    assert left in (ElectionState(epoch=1), ElectionState(epoch=2))
    assert len(machine.done) == 1
    assert machine.elections.read() == ElectionState(epoch=1)


def test_what_does_more_than_a_flush_keeps_its_own_result() -> None:
    """A snapshot that is adopted is deleted before and flushed in one job; its end is an event of its own."""
    timeline = Timeline()
    disk = SimulatedDisk(timeline, random.Random(1))
    heard: list[object] = []
    done: list[str] = []

    def two_flushes() -> str:
        disk.finish_later(lambda: done.append("first"))
        disk.finish_later(lambda: done.append("second"))
        return "adopted"

    disk.run(two_flushes, lambda result, error: heard.append((result, error)))
    timeline.run(1_000_000)

    assert heard == [("adopted", None)]
    assert done == ["first", "second"]


def test_a_hung_disk_does_nothing_until_it_is_set_free() -> None:
    machine = Machine()
    machine.disk.hung = True
    machine.write(1)
    machine.write(2)
    machine.run()
    assert machine.done == []
    assert machine.disk.is_busy
    assert machine.disk.is_stuck
    machine.disk.unhang()
    machine.run()

    assert len(machine.done) == 2
    assert not machine.disk.is_busy


def test_a_failing_disk_fails_one_write_and_keeps_nothing_of_it() -> None:
    machine = Machine()
    machine.disk.failing = True
    machine.write(1)
    machine.run()

    assert isinstance(machine.done[0][1], InjectedStorageError)
    assert isinstance(machine.done[0][1], StorageError)
    assert machine.store.read() is None


def test_what_a_function_raises_is_a_result() -> None:
    machine = Machine()
    machine.disk.run(lambda: 1 // 0, machine.then)
    machine.run()

    assert isinstance(machine.done[0][1], ZeroDivisionError)


def test_an_inline_disk_is_done_when_the_call_returns() -> None:
    machine = Machine()
    machine.disk.inline = True
    machine.log.append([batch(0, 1)])
    machine.disk.flush(machine.log, machine.then)

    assert machine.done == [(1, None)]


@pytest.mark.parametrize("seed", range(4))
def test_a_truncation_ends_where_whole_batches_do(seed: int) -> None:
    machine = Machine(seed)
    machine.log.append([batch(0, 1), batch(1, 1, b"a", b"b"), batch(3, 1)])
    machine.disk.run(lambda: machine.log.truncate(2), machine.then)
    machine.run()

    assert machine.log.end_offset == 1
    assert machine.observer.told[-1] == ("truncated", 1)
    machine.elections.close()
    machine.disk.close()
