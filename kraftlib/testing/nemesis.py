"""Makes trouble by swarm: each seed draws which kinds, how often and for how long, and in the end all is mended.

A run with all kinds at once is less likely to find a bug than many runs with a few kinds each: some faults keep others
from mattering.

The draws do not depend on the run: each strike has its number, its time and a seed of its own. So any of them can be
left out, and the others stay what they are; that is how a failing run is made smaller (`minimizer`).
"""

from __future__ import annotations

import random as chance
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.faults import FAULTS, Fault
from kraftlib.testing.network_faults import Undo
from kraftlib.testing.trace import Step

if TYPE_CHECKING:
    from kraftlib.testing.world import World

KINDS: Final = {name: number for number, name in enumerate(FAULTS)}

AT_ONCE_MAX: Final = 6
"""No more than this is wrong at one time."""


@attrs.frozen(kw_only=True)
class Strike:
    """One piece of trouble. All that it draws, it draws from `seed`."""

    number: int
    at_ms: int
    """Since the trouble began."""
    name: str
    duration_ms: int
    seed: int

    def __str__(self) -> str:
        lasts = f" for {self.duration_ms} ms" if FAULTS[self.name].longest_ms else ""
        return f"strike {self.number}: {self.name} at {self.at_ms} ms{lasts}"


class Nemesis:
    """The troublemaker of one world.

    `pace` stretches all its times, 1.0 fits the default timeouts; `rarely` stretches the pauses between strikes. With
    `only`, all strikes but those numbers are left out.
    """

    def __init__(
        self,
        world: World,
        random: chance.Random,
        *,
        kinds: Sequence[str],
        pace: float = 1.0,
        rarely: float = 1.0,
        only: Collection[int] | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """The number of faults of each kind."""
        self.made: list[Strike] = []
        """All strikes so far, in order."""
        self._only = only
        self._world = world
        self._random = random
        self._pace = pace
        self._weights = {name: random.uniform(0.2, 1.0) ** 2 for name in kinds}
        self._pause_ms = rarely * pace * 10 ** random.uniform(2.0, 3.5)
        self._active: dict[int, tuple[Fault, Undo]] = {}
        self._planned_ends_us: list[int] = []
        self._number = 0
        self._began_us = 0
        self._running = False

    @property
    def kinds(self) -> list[str]:
        """The kinds of faults that it draws from."""
        return list(self._weights)

    def start(self) -> None:
        """Begin to make trouble."""
        self._running = True
        self._began_us = self._world.timeline.now_us
        self._plan()

    def stop(self) -> None:
        """Make no more trouble, and mend everything."""
        self._running = False
        for number in list(self._active):
            self._mend(number)

    def strike(self, name: str, duration_ms: int | None = None) -> bool:
        """Begin trouble of one kind now; return whether there was something to do."""
        return self._begin(self._draw(name, duration_ms))

    def _draw(self, name: str, duration_ms: int | None = None) -> Strike:
        random, fault = self._random, FAULTS[name]
        shortest = fault.shortest_ms * self._pace
        longest = max(shortest, fault.longest_ms * self._pace)
        drawn_ms = int(shortest * (longest / shortest) ** random.random())
        self._number += 1
        return Strike(
            number=self._number,
            at_ms=(self._world.timeline.now_us - self._began_us) // MILLISECOND,
            name=name,
            duration_ms=drawn_ms if duration_ms is None else duration_ms,
            seed=random.getrandbits(64),
        )

    def _begin(self, strike: Strike) -> bool:
        fault, world = FAULTS[strike.name], self._world
        world.trace.add(
            world.timeline.now_us,
            Step.FAULT,
            -1,
            KINDS[strike.name],
            strike.duration_ms,
            f"{strike.name} #{strike.number}",
        )
        self.made.append(strike)
        undo = fault.begin(world, chance.Random(strike.seed))
        self.counts[strike.name] += 1
        if undo is None:
            return False
        self._active[strike.number] = (fault, undo)
        world.timeline.after(strike.duration_ms * MILLISECOND, self._mend, strike.number)
        return True

    def _plan(self) -> None:
        pause_us = int(self._random.expovariate(1.0 / self._pause_ms) * MILLISECOND)
        self._world.timeline.after(pause_us, self._next)

    def _next(self) -> None:
        if not self._running:
            return
        now_us = self._world.timeline.now_us
        if self._weights:
            strike = self._draw(self._random.choices(list(self._weights), list(self._weights.values()))[0])
            self._planned_ends_us = [end_us for end_us in self._planned_ends_us if end_us > now_us]
            if len(self._planned_ends_us) < AT_ONCE_MAX:
                # Planned, whether it is left out or finds nothing to do: the others must not depend on that.
                self._planned_ends_us.append(now_us + strike.duration_ms * MILLISECOND)
                if self._only is None or strike.number in self._only:
                    self._begin(strike)
        self._plan()

    def _mend(self, number: int) -> None:
        fault, undo = self._active.pop(number, (None, None))
        if fault is not None and undo is not None:
            self._world.trace.add(
                self._world.timeline.now_us, Step.HEALED, -1, KINDS[fault.name], 0, f"{fault.name} #{number}"
            )
            undo()
