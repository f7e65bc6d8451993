"""Calls, queries and pulls of watches on one replica, and the expiry that its leader proposes. On the engine's loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

import attrs

from kraftlib.coordination.access import BEFORE_ALL, AtLeast, Change, Consistency, Done, Gone, Linearizable, Machine
from kraftlib.coordination.net.arrivals import Arrivals
from kraftlib.coordination.net.turns import Turns
from kraftlib.errors import (
    BacklogFullError,
    ClosedError,
    ConfigError,
    NotLeaderError,
    OutcomeUnknownError,
    RecordTooLargeError,
    RefusedError,
    ReplicaFailedError,
    TimedOutError,
    UnavailableError,
)
from kraftlib.proposals.forwarding import Begun
from kraftlib.proposals.ports import APPLIED, Proposed
from kraftlib.runtime.client.node import Node
from kraftlib.runtime.client.proposing import engine_future
from kraftlib.runtime.waiters import COMMITTED
from kraftlib.types import Epoch, Offset
from kraftlib.wire.bounds import CHANGES

logger = logging.getLogger("kraftlib.runtime")

TICK_MIN_S: Final = 0.025
TICK_MAX_S: Final = 0.1
"""The time between two looks of the leader for expired sessions and keys. A session outlives its end by two at most."""

TICK_SHARE: Final = 0.05
"""The part of the time that looking may take: with many sessions the leader looks less often."""

PULL_MAX_BYTES: Final = 1024 * 1024
"""The changes that one pull returns; a single change may be larger."""


@attrs.frozen
class Pull:
    """A watch that asks for its next changes."""

    selector: bytes
    since: Offset | None
    """None: from now on."""


@attrs.frozen
class Pulled:
    """The changes of a watch, in order, and the offset to go on from; or the error that ends it."""

    next_since: Offset
    changes: Sequence[Change] = ()
    error: ConfigError | None = None


class Service:
    """One machine on one node. `machine` is also the state machine of the node."""

    def __init__(self, node: Node, machine: Machine) -> None:
        self._node: Final = node
        self._machine: Final = machine
        self.loop: Final = asyncio.get_running_loop()
        self._arrivals: Final = Arrivals(node, machine)
        self._turns: Final = Turns()
        self._look_s = 0.0
        """The time that the last look for expired sessions and keys took."""
        self._expiring: Final = asyncio.ensure_future(self._expire())

    def end(self) -> None:
        """Propose nothing more."""
        self._expiring.cancel()

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        """Have a command committed and applied, here too. Raises as `Access.call` does."""
        try:
            self._machine.check(command)
        except ConfigError as error:
            raise RefusedError(str(error)) from None
        proposals = self._node.proposals
        return await self.outcome(proposals.propose([command], level=APPLIED, timeout_ms=timeout_ms, repeatable=True))

    def begin(self, command: bytes, *, timeout_ms: int) -> Begun | None:
        """Begin a call without a task, see `Proposals.begin`; None, if `call` must say why it cannot begin."""
        try:
            self._machine.check(command)
        except Exception:  # noqa: BLE001 - `call` meets it again, and raises it
            return None
        return self._node.proposals.begin([command], level=APPLIED, timeout_ms=timeout_ms, repeatable=True)

    @staticmethod
    async def outcome(proposing: Coroutine[Any, Any, Proposed]) -> Done:
        """Return where a command stands, with its result. Raises as `Access.call` does."""
        try:
            proposed = await proposing
        except (NotLeaderError, BacklogFullError) as error:
            raise UnavailableError(str(error)) from error
        except (RecordTooLargeError, ConfigError) as error:
            raise RefusedError(str(error)) from error
        return done_of(proposed)

    async def query(self, question: bytes, *, consistency: Consistency, timeout_ms: int) -> tuple[Offset, bytes]:
        """Answer a question as `Access.query` does. Raises ReplicaFailedError, too."""
        self._node.ensure_applying()
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                if isinstance(consistency, Linearizable):
                    await self._barrier(timeout_ms)
                elif isinstance(consistency, AtLeast):
                    await self._applied(consistency.offset)
                while (answer := await self._turns.do(partial(self._ask, question))) is None:
                    await self._applied(BEFORE_ALL)
        except TimeoutError:
            raise TimedOutError(f"{consistency} was not reached here within {timeout_ms} ms") from None
        return answer

    def _ask(self, question: bytes) -> tuple[Offset, bytes] | None:
        """Return the offset and the answer; None while another thread replaces the state."""
        self._node.ensure_applying()
        if self._node.applier.is_loading:
            return None
        return self._machine.applied, self._machine.query(question)

    async def pull(
        self, pulls: Sequence[Pull], *, max_wait_ms: int, max_bytes: int, interrupted: asyncio.Future[None]
    ) -> Sequence[Pulled]:
        """Return the next changes of these watches: at once if there are any, else when there are, or at the end.

        Raises: TimedOutError, if a watch begins now and no leader says what that is; ClosedError, ReplicaFailedError.
        """
        if any(pull.since is None for pull in pulls):
            await self._barrier(max_wait_ms)
            max_wait_ms = 0
            pulls = [attrs.evolve(p, since=self._machine.applied) if p.since is None else p for p in pulls]
        deadline = self.loop.time() + max_wait_ms / 1_000
        while True:
            self._node.ensure_applying()
            seen = self._machine.applied, self._node.applier.is_loading
            pulled = await self._look(pulls, max_bytes)
            left_s = deadline - self.loop.time()
            if left_s <= 0 or interrupted.done() or any(one.changes or one.error for one in pulled):
                return pulled
            pulls = [attrs.evolve(pull, since=one.next_since) for pull, one in zip(pulls, pulled, strict=True)]
            if (self._machine.applied, self._node.applier.is_loading) != seen:
                continue  # more was applied between two looks, or a load has ended
            with self._arrivals.awaited([pull.selector for pull in pulls]) as arrived:
                await asyncio.wait((arrived, interrupted), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    async def _look(self, pulls: Sequence[Pull], max_bytes: int) -> list[Pulled]:
        pulled, left = [], min(max_bytes, PULL_MAX_BYTES)
        for pull in pulls:
            since = -1 if pull.since is None else pull.since
            pulled.append(await self._turns.do(partial(self._look_at, pull.selector, since, left)))
            left -= sum(len(change.data) for change in pulled[-1].changes)
        return pulled

    def _look_at(self, selector: bytes, since: Offset, max_bytes: int) -> Pulled:
        machine = self._machine
        if max_bytes <= 0 or self._node.applier.is_loading:  # another thread replaces the state meanwhile
            return Pulled(since)
        try:
            found = machine.changes(selector, since, most=CHANGES)
        except ConfigError as error:
            return Pulled(since, error=error)
        if isinstance(found, Gone):
            return Pulled(found.offset, (Change(found.offset, found.state, full=True),))
        changes: list[Change] = []
        for offset, data in found:
            if changes and len(data) > max_bytes:
                return Pulled(changes[-1].offset, changes)
            max_bytes -= len(data)
            changes.append(Change(offset, data))
        return Pulled(max(since, machine.applied) if len(found) < CHANGES else changes[-1].offset, changes)

    async def _applied(self, offset: Offset) -> None:
        await engine_future(self._node, lambda promise: self._node.wait_for_offset(offset, promise))

    async def _barrier(self, timeout_ms: int) -> None:
        async with asyncio.timeout(max(1, timeout_ms) / 1_000):  # also where what is committed is not applied so soon
            await engine_future(self._node, lambda promise: self._node.read_barrier(promise, max(1, timeout_ms)))

    # --- expiry ------------------------------------------------------------------------------------------------------

    async def _expire(self) -> None:
        """As leader propose what is over, once all records from before the epoch are applied."""
        caught_up: Epoch = -1
        told = ""
        while True:
            await asyncio.sleep(min(max(TICK_MIN_S, self._look_s / TICK_SHARE), TICK_MAX_S))
            epoch = self._node.appends.epoch
            try:
                if epoch >= 0 and epoch != caught_up:
                    await self._barrier(1_000)
                    caught_up = epoch
                if epoch >= 0 and epoch == self._node.appends.epoch and not self._node.applier.is_loading:
                    await self._propose_due(epoch)
            except ClosedError:
                return
            except (NotLeaderError, BacklogFullError, OutcomeUnknownError, ReplicaFailedError, TimeoutError):
                continue  # leadership is lost, or the backlog is full: the next tick tries again
            except Exception as error:  # it is the machine's, whose next look may succeed
                if told != (told := repr(error)):
                    logger.error("the machine fails to say what has expired: %s", told, exc_info=error)

    async def _propose_due(self, epoch: Epoch) -> None:
        began_s = time.perf_counter()
        due = self._machine.due(epoch, round(self.loop.time() * 1_000))
        self._look_s = time.perf_counter() - began_s
        append, proposed = self._node.appends.append, list[asyncio.Future[Any]]()
        try:
            for command in due:
                proposed.append(engine_future(self._node, partial(append, [command], epoch, COMMITTED)))
        finally:
            await asyncio.gather(*proposed)  # in few batches, however many commands there are


def done_of(proposed: Proposed) -> Done:
    """Return where a command stands, with its result."""
    return Done(offset=proposed.last_offset, epoch=proposed.epoch, result=proposed.results[0])
