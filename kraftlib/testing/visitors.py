"""Listeners that come and go while a replica runs, as `RaftClient.register` and `unregister` let them.

They come in pairs. One of a pair takes both away in the midst of what it is given, or raises there. A listener that is
gone, or has raised, must hear nothing any more (I15), and the others go on.
"""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING, Final

from kraftlib.runtime.committed import BatchReader, LoadedSnapshot
from kraftlib.testing import application_invariants as app_inv
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.listener_watch import ListenerWatch
from kraftlib.types import LeaderAndEpoch

if TYPE_CHECKING:
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World

SHARE: Final = 0.3
"""Share of the seeds that have visitors."""

RAISES: Final = 0.3
"""Share of the visits that end with an error of the listener."""


class InjectedListenerError(Exception):
    """The error of a visitor."""


class Visitor(ListenerWatch):
    """One listener. It stays for so many calls."""

    def __init__(self, world: World, process: Process, calls: int, *, raises: bool) -> None:
        super().__init__(world.checker, process)
        self._world = world
        self._host = process
        self._left = calls
        self._raises = raises
        self.companion: Visitor | None = None
        self.is_gone = False

    def handle_commit(self, reader: BatchReader) -> None:
        """Take committed batches."""
        self._hears()
        super().handle_commit(reader)
        self._maybe_go()

    def handle_load_snapshot(self, reader: LoadedSnapshot) -> None:
        """Begin at the end of a snapshot."""
        self._hears()
        super().handle_load_snapshot(reader)
        self._maybe_go()

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Hear who leads."""
        self._hears()
        super().handle_leader_change(leader)
        self._maybe_go()

    def _hears(self) -> None:
        self._world.checker.check(app_inv.i15_listener_that_is_gone_hears_nothing, self._host.node, self.is_gone)

    def _maybe_go(self) -> None:
        self._left -= 1
        if self._left > 0:
            return
        self.is_gone = True
        if self._raises:
            raise InjectedListenerError("a listener raises (injected)")
        for one in (self, self.companion):
            if one is not None:
                one.is_gone = True
                self._host.applier.unregister(one)


class Visitors:
    """Lets pairs of listeners come to replicas that run, until `stop`."""

    def __init__(self, world: World, random: chance.Random, *, pace: float) -> None:
        self._world = world
        self._random = random
        self._pause_us = int(1_000 * MILLISECOND * pace)
        self._running = False

    def start(self) -> None:
        """Let the first ones come, if this run has any."""
        if self._random.random() < SHARE:
            self._running = True
            self._next()

    def stop(self) -> None:
        """Let no more come; those that are there stay."""
        self._running = False

    def _next(self) -> None:
        if not self._running:
            return
        random, nodes = self._random, self._world.running_nodes()
        process = random.choice(nodes).process if nodes else None
        if process is not None:
            pair = [Visitor(self._world, process, random.randint(1, 30), raises=random.random() < RAISES) for _ in "12"]
            pair[0].companion = pair[1]
            for one in pair:
                process.applier.register(one)
        self._world.timeline.after(int(self._pause_us * random.uniform(0.2, 2.0)), self._next)
