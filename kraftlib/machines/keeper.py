"""Levels on a replica: it announces what its release supports, and as leader it raises what is wanted.

It looks ten times a second at the applied levels, and proposes nothing while they are as they should be.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from kraftlib.consensus.describe import OBSERVER_SESSION_MS
from kraftlib.errors import ClosedError, ConfigError, KraftError
from kraftlib.machines.messages import Announce, Raise, encode
from kraftlib.runtime.client.proposing import engine_future
from kraftlib.runtime.waiters import COMMITTED
from kraftlib.types import Epoch, ReplicaId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraftlib.machines.machines import Machines
    from kraftlib.runtime.client.node import Node

logger: Final = logging.getLogger("kraftlib.machines")

TICK_S: Final = 0.1
TIMEOUT_MS: Final = 1_000

FIND_LEADER: Final = 2
"""Fetch timeouts after which an observer has found a new leader."""


class LevelKeeper:
    """The companion of `Machines` on the loop of the engine."""

    def __init__(self, machines: Machines) -> None:
        self._machines: Final = machines
        self._keeping: asyncio.Task[None] | None = None
        self._caught_up: Epoch = -1
        """The epoch in which this replica leads and has applied all records from before it."""
        self._led_since_s = 0.0
        """The time of the loop when that was found."""
        self._told: dict[str, tuple[int, Sequence[ReplicaId]]] = {}
        """The replicas that hold up a level, as the log was told, by machine."""

    def begin(self, node: Node) -> None:
        """Begin to look. Raises: ConfigError."""
        if not node.core.state.config.private_apis:
            raise ConfigError("private_apis=False: replicas announce their levels by these APIs; leave it at true")
        if self._keeping is not None:
            raise ConfigError("these Machines are those of another replica: make one for each")
        self._keeping = asyncio.ensure_future(self._keep(node))

    def end(self) -> None:
        """Look no more."""
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None

    async def _keep(self, node: Node) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self._announce(node)
                await self._raise_wanted(node)
            except ClosedError:
                return
            except (KraftError, TimeoutError):
                continue  # no leader, a full backlog, a machine that has stopped: the next tick looks again

    async def _announce(self, node: Node) -> None:
        own, supported = node.core.key.id, self._machines.supported
        if self._machines.levels.announced.get(own) == supported:
            return
        await self._barrier(node)  # a replica that has just begun may have announced it in what it has not applied
        if self._machines.levels.announced.get(own) == supported:
            return
        rows = tuple(Announce.Level(machine=name, level=level) for name, level in supported.items())
        data = encode(Announce(replica_id=own, supports=rows))
        await node.proposals.propose([data], level=COMMITTED, timeout_ms=TIMEOUT_MS, repeatable=True)

    async def _raise_wanted(self, node: Node) -> None:
        """As leader, raise what is wanted and supported by all."""
        epoch = node.appends.epoch
        if epoch < 0:
            return
        if epoch != self._caught_up:
            await self._barrier(node)
            self._caught_up, self._led_since_s = epoch, asyncio.get_running_loop().time()
        for machine, level in self._machines.levels.wanted.items():
            status = node.status()
            observers = {row.id for row in status.observers if (row.last_fetch_ms_ago or 0) <= OBSERVER_SESSION_MS}
            replicas = sorted({row.id for row in status.voters} | observers)
            lacking = self._machines.levels.lacking(machine, level, replicas)
            if not lacking and self._knows_observers(node):
                record = Raise(machine=machine, level=level, epoch=epoch, replicas=tuple(replicas))
                # Appended in this very turn: nothing has changed the voters since.
                await engine_future(node, partial(node.appends.append, [encode(record)], epoch, COMMITTED))
            elif lacking and self._told.get(machine) != (level, lacking):
                self._told[machine] = level, lacking
                logger.warning(
                    "machine %r stays at level %d: replicas %s have not announced level %d; upgrade them, or remove "
                    "them from the quorum",
                    *(machine, self._machines.levels.of(machine), lacking, level),
                )

    def _knows_observers(self, node: Node) -> bool:
        """Whether this replica has led for long enough that each observer has had the time to find it."""
        led_s = asyncio.get_running_loop().time() - self._led_since_s
        return led_s * 1_000 >= FIND_LEADER * node.core.state.config.fetch_timeout_ms

    async def _barrier(self, node: Node) -> None:
        await engine_future(node, lambda promise: node.read_barrier(promise, TIMEOUT_MS))
