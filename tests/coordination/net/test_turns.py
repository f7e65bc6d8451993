"""What clients ask for is done in pieces, and the replica has its turn between two of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest

from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.net import turns
from kraftlib.coordination.net.turns import Turns
from kraftlib.wire.bounds import WATCHES
from tests.coordination.net.test_server import connection, watch
from tests.coordination.net.ways import EVERYTHING, Caller, replicas

A_PIECE_A_TURN = 1e-9
"""So short that the first piece of each turn is the last."""


class TurnsOfTheLoop:
    """Counts the turns of the running loop, and what is done in each."""

    def __init__(self) -> None:
        self.now = 0
        self.done: Counter[int] = Counter()
        self._loop = asyncio.get_running_loop()
        self._tick()

    def _tick(self) -> None:
        self.now += 1
        self._loop.call_soon(self._tick)

    def note(self) -> None:
        self.done[self.now] += 1


async def test_a_turn_ends_when_its_time_is_over_and_the_rest_is_done_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", A_PIECE_A_TURN)
    work, loop, order = Turns(), TurnsOfTheLoop(), []

    def piece(number: int) -> int:
        loop.note()
        order.append(number)
        return number

    pieces = [asyncio.ensure_future(work.do(partial(piece, number))) for number in range(50)]
    await asyncio.sleep(0)
    pieces[20].cancel()
    found = await asyncio.gather(*pieces, return_exceptions=True)
    assert order == [number for number in range(50) if number != 20]
    assert [each for each in found if isinstance(each, int)] == order
    assert set(loop.done.values()) == {1}


async def test_an_error_is_that_of_whoever_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", A_PIECE_A_TURN)
    work = Turns()
    found = await asyncio.gather(*(work.do(partial(divmod, 1, n)) for n in (0, 1, 0)), return_exceptions=True)
    assert [type(each) for each in found] == [ZeroDivisionError, tuple, ZeroDivisionError]


async def test_the_watches_of_one_request_are_looked_at_in_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have ten thousand changes to look through: together they would keep a leader from its voters."""
    monkeypatch.setattr(turns, "TURN_S", A_PIECE_A_TURN)
    look = ServiceMachine.changes
    loops: dict[asyncio.AbstractEventLoop, TurnsOfTheLoop] = {}

    def changes(machine: ServiceMachine, *what: Any, **how: Any) -> Any:
        here = asyncio.get_running_loop()
        loops.setdefault(here, TurnsOfTheLoop()).note()
        return look(machine, *what, **how)

    async with replicas(1) as quorum, connection(quorum) as made:
        done = await (await Caller(quorum.running[1]).begin()).put("key", b"")
        monkeypatch.setattr(ServiceMachine, "changes", changes)
        answer = await watch(made, *[(EVERYTHING, done.offset)] * WATCHES, wait_ms=0)
        assert len(answer.found) == WATCHES
        (counted,) = loops.values()
        assert counted.done.total() >= WATCHES
        assert max(counted.done.values()) <= 2, "the count begins amid a turn"


async def test_a_change_between_two_looks_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", A_PIECE_A_TURN)
    async with replicas(1) as quorum, connection(quorum) as made, asyncio.timeout(60):
        caller = await Caller(quorum.running[1]).begin()
        now = (await caller.put("key", b"")).offset
        for _ in range(10):
            waiting = asyncio.ensure_future(watch(made, *[(EVERYTHING, now)] * WATCHES))
            written = (await caller.put("key", b"")).offset
            found = (await waiting).found
            assert any(change.offset == written for each in found for change in each.changes)
            now = written
