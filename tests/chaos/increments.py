"""Increments that are retried through leaders that are killed: the sum equals the calls, and each call has one result.

Three kinds of callers work at once. Some use `Counter.add`, which repeats by itself. Some give each call a number and
so little time that its outcome is often unknown; then they repeat it with the same number. Some read a key of a map,
and compare and set it to the next number.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import attrs

import kraftlib
from kraftlib.cli.cluster import Cluster
from kraftlib.coordination.messages import Do, Transact
from kraftlib.errors import OutcomeUnknownError, RefusedError
from kraftlib.recipes.kraft import Kraft
from kraftlib.recipes.map import ABSENT
from kraftlib.recipes.sessions import scope
from tests.chaos.killing import Killer, Progress, Tell, Violation, clients

CALLERS: Final = 2
"""Of each kind."""
BETWEEN: Final = 60
"""Calls that are answered between two kills."""
IMPATIENT_MS: Final = 30
"""A call that is given so little time is often without an outcome."""
NAME: Final = "proof"


@attrs.define
class Tally:
    """Answers of all callers."""

    sums: list[int] = attrs.Factory(list)
    """The result of each addition."""
    sets: int = 0
    """Compare-and-sets that have succeeded."""
    repeated: int = 0
    """Calls whose outcome was unknown, and which were repeated by their caller."""
    slowest_ms: float = 0.0


class Callers:
    """All callers of a proof, until they are told to stop."""

    def __init__(self) -> None:
        self.tally: Final = Tally()
        self.progress: Final = Progress()
        self.stop: Final = asyncio.Event()

    async def patient(self, kraft: Kraft) -> None:
        """Add by the recipe, which repeats a call until it is done."""
        counter = kraft.counter(NAME)
        while not self.stop.is_set():
            began = time.monotonic()
            self.tally.sums.append(await counter.add())
            await self._answered(began)

    async def impatient(self, kraft: Kraft) -> None:
        """Add by calls with numbers of the caller, each repeated until it has a result."""
        session = await kraft.session()
        addition = Transact(then=(Transact.Operation(do=Do.ADD, key=scope("counter", NAME), delta=1),))
        while not self.stop.is_set():
            began, number, result = time.monotonic(), session.reserve(), None
            while result is None:
                try:
                    result = await session.call(addition, number=number, timeout_ms=IMPATIENT_MS)
                except (OutcomeUnknownError, RefusedError):
                    self.tally.repeated += 1
            session.forget(number)
            self.tally.sums.append(int(result.items[0].value or b"0"))
            await self._answered(began)

    async def setting(self, kraft: Kraft) -> None:
        """Read a number, and set it to the next one if nobody else has."""
        numbers = kraft.map(NAME)
        while not self.stop.is_set():
            began, entry = time.monotonic(), await numbers.get("n")
            revision, number = (ABSENT, 0) if entry is None else (entry.revision, int(entry.value))
            done = await numbers.compare_and_set("n", expect=revision, value=b"%d" % (number + 1))
            self.tally.sets += done is not None
            await self._answered(began)

    async def _answered(self, began: float) -> None:
        self.tally.slowest_ms = max(self.tally.slowest_ms, (time.monotonic() - began) * 1_000)
        await self.progress.add()


async def prove_increments(cluster: Cluster, *, kills: int, tell: Tell) -> dict[str, Any]:
    """Kill so many leaders while the callers work; return the figures. Raises: Violation."""
    began = time.monotonic()
    callers, killer = Callers(), Killer(cluster, tell)
    async with clients(cluster, 3 * CALLERS) as connected, asyncio.TaskGroup() as tasks:
        for work, group in zip((callers.patient, callers.impatient, callers.setting), _groups(connected), strict=True):
            for kraft in group:
                tasks.create_task(work(kraft))
        for _ in range(kills):
            await callers.progress.reached(callers.progress.count + BETWEEN)
            await killer.kill_leader()
        await callers.progress.reached(callers.progress.count + BETWEEN)
        callers.stop.set()
    for endpoint in cluster.endpoints:
        await _judge(str(endpoint), callers.tally)
    tally = callers.tally
    return {
        "kills": killer.kills,
        "additions": len(tally.sums),
        "sum": max(tally.sums),
        "compare_and_sets": tally.sets,
        "repeated_by_callers": tally.repeated,
        "slowest_ms": round(tally.slowest_ms),
        "seconds": round(time.monotonic() - began, 1),
    }


def _groups(connected: list[Kraft]) -> list[list[Kraft]]:
    return [connected[at : at + CALLERS] for at in range(0, len(connected), CALLERS)]


async def _judge(server: str, tally: Tally) -> None:
    """Compare what a replica has with what the callers were told."""
    async with kraftlib.connect(server) as kraft:
        total, entry = await kraft.counter(NAME).value(), await kraft.map(NAME).get("n")
    check_sums(tally.sums, total)
    number = 0 if entry is None else int(entry.value)
    if number != tally.sets:
        raise Violation(f"{server}: {tally.sets} compare-and-sets have succeeded, and the number is {number}")


def check_sums(sums: list[int], total: int) -> None:
    """Check that each addition of one has counted once and has its own result. Raises: Violation."""
    if total != len(sums):
        raise Violation(f"{len(sums)} additions were answered, and the sum is {total}")
    if sorted(sums) != list(range(1, total + 1)):
        raise Violation(f"the results of {len(sums)} additions are not the numbers from 1 to {total}, each once")
