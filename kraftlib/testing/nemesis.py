"""Makes trouble by swarm: each seed draws which kinds, how often and for how long, and in the end all is mended.

A run with all kinds at once is less likely to find a bug than many runs with a few kinds each: some faults keep others
from mattering.
"""

from __future__ import annotations

import random as chance
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.faults import FAULTS, Fault
from kraftlib.testing.network_faults import Undo
from kraftlib.testing.trace import Step

if TYPE_CHECKING:
    from kraftlib.testing.world import World

KINDS: Final = {name: number for number, name in enumerate(FAULTS)}

AT_ONCE_MAX: Final = 6
"""No more than this is wrong at one time."""


class Nemesis:
    """The troublemaker of one world. `pace` stretches all its times: 1.0 fits the default timeouts."""

    def __init__(self, world: World, random: chance.Random, *, kinds: Sequence[str], pace: float = 1.0) -> None:
        self.counts: Counter[str] = Counter()
        """How often each kind was begun."""
        self._world = world
        self._random = random
        self._pace = pace
        self._weights = {name: random.uniform(0.2, 1.0) ** 2 for name in kinds}
        self._pause_ms = pace * 10 ** random.uniform(2.0, 3.5)
        self._shortest_ms = pace * 20
        self._active: dict[int, tuple[Fault, Undo]] = {}
        self._number = 0
        self._running = False

    @property
    def kinds(self) -> list[str]:
        """What it may do."""
        return list(self._weights)

    def start(self) -> None:
        """Begin to make trouble."""
        self._running = True
        self._plan()

    def stop(self) -> None:
        """Make no more trouble, and mend everything."""
        self._running = False
        for number in list(self._active):
            self._mend(number)

    def strike(self, name: str, duration_ms: int | None = None) -> bool:
        """Begin trouble of one kind now; return whether there was something to do."""
        fault, random, world = FAULTS[name], self._random, self._world
        if duration_ms is None:
            longest = max(self._shortest_ms, fault.longest_ms * self._pace)
            duration_ms = int(self._shortest_ms * (longest / self._shortest_ms) ** random.random())
        world.trace.add(world.timeline.now_us, Step.FAULT, -1, KINDS[name], duration_ms, name)
        undo = fault.begin(world, random)
        self.counts[name] += 1
        if undo is None:
            return False
        self._number += 1
        self._active[self._number] = (fault, undo)
        world.timeline.after(duration_ms * MILLISECOND, self._mend, self._number)
        return True

    def _plan(self) -> None:
        pause_us = int(self._random.expovariate(1.0 / self._pause_ms) * MILLISECOND)
        self._world.timeline.after(pause_us, self._next)

    def _next(self) -> None:
        if not self._running:
            return
        if self._weights and len(self._active) < AT_ONCE_MAX:
            name = self._random.choices(list(self._weights), list(self._weights.values()))[0]
            self.strike(name)
        self._plan()

    def _mend(self, number: int) -> None:
        fault, undo = self._active.pop(number, (None, None))
        if fault is not None and undo is not None:
            self._world.trace.add(self._world.timeline.now_us, Step.HEALED, -1, KINDS[fault.name], 0, fault.name)
            undo()
