"""An access to one machine in this process, without a quorum: for tests, and to try a service out.

    async with MemoryAccess() as access:
        done = await access.call(command, timeout_ms=1_000)

Nothing is durable. Sessions and keys expire as they do on a leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from kraftlib.coordination.access import LINEARIZABLE, AtLeast, Change, Consistency, Done, Gone
from kraftlib.coordination.arguments import check_bytes, check_consistency, check_since
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.errors import ClosedError, ConfigError, RefusedError, TimedOutError
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.loop import monotonic_ms
from kraftlib.types import Epoch, Offset
from kraftlib.validators import check_whole_timeout

TICK_S: Final = 0.02
CHANGES_AT_ONCE: Final = 256


class MemoryAccess:
    """The access. `epoch` may be raised by a test: a new leader grants every session its full time."""

    def __init__(self, machine: ServiceMachine | None = None, *, clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self.machine = machine or ServiceMachine()
        self.epoch: Epoch = 1
        self._clock_ms = clock_ms
        self._more = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> MemoryAccess:
        self._ticking = asyncio.create_task(self._tick())
        self._ticking.add_done_callback(lambda _: self._wake())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        self._wake()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait([self._ticking])

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.expire()

    def expire(self) -> None:
        """Apply what the leader would find to be over."""
        for command in self.machine.due(self.epoch, self._clock_ms()):
            self._append(command)

    def _append(self, command: bytes) -> Done:
        offset = self.machine.applied + 1
        result = self.machine.apply(CommittedRecord(offset, self.epoch, self._clock_ms(), command))
        self._wake()
        return Done(offset=offset, epoch=self.epoch, result=result)

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this access is closed")
        if self._ticking is not None and self._ticking.done():
            self._ticking.result()  # raises the error of the machine

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        """Apply a command."""
        check_bytes("command", command)
        check_whole_timeout(timeout_ms, least=1)
        self._check_open()
        try:
            self.machine.check(command)
        except ConfigError as error:
            raise RefusedError(str(error)) from None
        await asyncio.sleep(0)
        return self._append(command)

    async def query(
        self, question: bytes, *, consistency: Consistency = LINEARIZABLE, timeout_ms: int
    ) -> tuple[Offset, bytes]:
        """Answer from the state, which is never behind."""
        check_bytes("question", question)
        check_consistency(consistency)
        check_whole_timeout(timeout_ms, least=1)
        self._check_open()
        if isinstance(consistency, AtLeast) and consistency.offset > self.machine.applied:
            try:
                async with asyncio.timeout(timeout_ms / 1_000):
                    while consistency.offset > self.machine.applied:
                        await self._more.wait()
                        self._check_open()
            except TimeoutError:
                raise TimedOutError(f"offset {consistency.offset} was not applied within {timeout_ms} ms") from None
        return self.machine.applied, self.machine.query(question)

    async def watch(self, selector: bytes, since: Offset | None) -> AsyncIterator[Change]:
        """Yield what is applied from now on, or after `since`."""
        check_bytes("selector", selector)
        check_since(since)
        position = self.machine.applied if since is None else since
        while True:
            self._check_open()
            more = self._more
            found = self.machine.changes(selector, position, most=CHANGES_AT_ONCE)
            if isinstance(found, Gone):
                position = found.offset
                yield Change(found.offset, found.state, full=True)
                continue
            if len(found) < CHANGES_AT_ONCE:
                position = max(position, self.machine.applied)
            else:
                position = found[-1][0]
            for offset, data in found:
                yield Change(offset, data)
            if len(found) < CHANGES_AT_ONCE:
                await more.wait()
