"""The calls of a session: numbered, so that each counts once, and finished or undone where their caller has left.

A caller that is cancelled, or that is not told in time, does not know what its call did. A session that lives on must
not keep that half done: see `call_through` and `call_or_undo`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kraftlib.codec.declared import Message
from kraftlib.coordination.access import Access
from kraftlib.coordination.commands import decode, encode_command
from kraftlib.coordination.messages import NONE, Release, Result, Status
from kraftlib.coordination.sessions import NO_ROOM
from kraftlib.errors import (
    ClosedError,
    FencedError,
    OutcomeUnknownError,
    RefusedError,
    ReplicaFailedError,
    SessionEndedError,
    UnavailableError,
)
from kraftlib.types import Offset, new_uuid

RENEWALS: Final = 6
"""Renewals within a time to live; without a confirmation for two of them the session is uncertain."""

LATER: Final = (RefusedError, OutcomeUnknownError, ReplicaFailedError)
"""Errors of an access after which a call is tried again as long as the session lives. A replica that was quarantined is
healed by and by."""

CALLS_MAX: Final = 1_000
"""Calls of a session that may be under way. The machine keeps the results of a few more (`RESULTS_MAX`): some are made
beside them for callers that have left."""

MARGIN: Final = 10
"""A tenth of the time to live is left for clocks that run at different rates."""


class Calls:
    """Sends the calls of one session."""

    def __init__(self, access: Access, *, ttl_ms: int, timeout_ms: int, clock_ms: Callable[[], int]) -> None:
        self.id = new_uuid()
        """A secret: a client that knows it may call in the name of this session."""
        self.opened: Offset = NONE
        """The offset at which it was opened, by which others see it."""
        self.ttl_ms = ttl_ms
        self.timeout_ms = timeout_ms
        self.ended = asyncio.Event()
        self.access = access
        self.clock_ms = clock_ms
        self.confirmed_ms = clock_ms() - ttl_ms
        """Sending time of the last call that is known to have renewed the session."""
        self._next = 1
        self._arrived = 0
        """The last call that is known to have come."""
        self._waiting: set[int] = set()
        """Calls whose results matter still."""
        self._first = 1
        """None of the calls before matters."""
        self._queue: deque[asyncio.Future[int]] = deque()
        """Callers that wait until fewer calls are under way."""
        self._beside: set[asyncio.Task[object]] = set()
        """The work for callers that have left."""

    def reserve(self) -> int:
        """Return the number of a call that may be sent more than once; `forget` it when its result does not matter."""
        number, self._next = self._next, self._next + 1
        self._waiting.add(number)
        return number

    async def reserve_in_time(self, timeout_ms: int | None = None) -> tuple[int, int]:
        """As `reserve`, once a session may have one more call under way; and return what is left of `timeout_ms`.

        Raises: UnavailableError, if there was no room in time.
        """
        wanted_ms = timeout_ms or self.timeout_ms
        if not self._queue and self._has_room():
            return self.reserve(), wanted_ms
        loop = asyncio.get_running_loop()
        began_s, waits = loop.time(), loop.create_future()
        self._queue.append(waits)
        try:
            async with asyncio.timeout(wanted_ms / 1_000):
                number: int = await waits
        except BaseException as error:
            if waits.done() and not waits.cancelled():
                self.forget(waits.result())
            if isinstance(error, TimeoutError):
                raise UnavailableError(
                    f"nothing was sent within {wanted_ms} ms: this session has {CALLS_MAX} calls under way"
                ) from None
            raise
        return number, max(1, wanted_ms - round((loop.time() - began_s) * 1_000))

    def forget(self, number: int) -> None:
        """Let go of a call: if it arrives after a later call of this session, it is not applied."""
        self._waiting.discard(number)
        while self._queue and (self._queue[0].done() or self._has_room()):
            waits = self._queue.popleft()
            if not waits.done():
                waits.set_result(self.reserve())

    def _oldest(self) -> int:
        """Return the first call whose result matters still; the next one, if there is none."""
        while self._first < self._next and self._first not in self._waiting:
            self._first += 1
        return self._first

    def _has_room(self) -> bool:
        return self._next - self._oldest() < CALLS_MAX

    async def call(self, body: Message, *, number: int | None = None, timeout_ms: int | None = None) -> Result:
        """Have a command applied once, and return its result.

        With a `number` of `reserve`, the call may be repeated until it is done, and returns the first result.

        Raises: RefusedError, FencedError (nothing was changed), UnavailableError too if it was never sent;
        SessionEndedError; OutcomeUnknownError.
        """
        if number is None:
            own, timeout_ms = await self.reserve_in_time(timeout_ms)
        else:
            own = number
        try:
            result = await self._send(body, own, timeout_ms)
        finally:
            if number is None:
                self.forget(own)
        if result.status == Status.SESSION_ENDED:
            raise SessionEndedError(f"session {self.opened} has ended: its locks and ephemeral keys are gone")
        if result.status == Status.FENCED:
            raise FencedError("the lock is not held with the token of the fence any more: nothing was changed")
        if result.status != Status.OK:
            raise RefusedError(result.reason or "the call was given up before it arrived: nothing was changed")
        return result

    async def _send(self, body: Message, number: int, timeout_ms: int | None = None) -> Result:
        """Send a call, and note what its result says of the session."""
        acknowledged = min(self._oldest(), number or self._arrived + 1)
        command = encode_command(body, session=self.id, opened=self.opened, sequence=number, acknowledged=acknowledged)
        sent_ms = self.clock_ms()
        done = await self.access.call(command, timeout_ms=timeout_ms or self.timeout_ms)
        result = decode(Result, done.result)
        if result.status == Status.SESSION_ENDED:
            self.ended.set()
        if result.status in (Status.OK, Status.FENCED):
            self.confirmed_ms = max(self.confirmed_ms, sent_ms)
            self._arrived = max(self._arrived, number)
        return result

    async def ended_within(self, time_ms: float) -> bool:
        """Wait for this long, or until the session has ended; return whether it has."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(time_ms, 1) / 1_000):
                await self.ended.wait()
        return self.ended.is_set()

    # --- being alive -------------------------------------------------------------------------------------------------

    @property
    def valid_until_ms(self) -> int:
        """Until then, by the clock of this session, no other session holds its locks and keys."""
        return self.confirmed_ms + self.ttl_ms - self.ttl_ms // MARGIN

    def is_valid(self) -> bool:
        """Whether the session is surely alive. Never blocks."""
        return not self.ended.is_set() and self.clock_ms() < self.valid_until_ms

    async def wait_invalid(self) -> None:
        """Return as soon as it is not surely alive any more."""
        while self.is_valid():
            await self.ended_within(self.valid_until_ms - self.clock_ms())

    # --- calls whose caller may leave --------------------------------------------------------------------------------

    async def call_through(self, body: Message) -> Result:
        """As `call`; if its caller leaves before it is answered, it is repeated beside it until it is."""
        number, left_ms = await self.reserve_in_time()
        try:
            result = await self.call(body, number=number, timeout_ms=left_ms)
        except BaseException:
            self._start(self._surely(body, number))
            raise
        self.forget(number)
        return result

    async def call_or_undo(self, body: Message, undo: Callable[[Result], Message | None]) -> Result:
        """As `call`; if its caller leaves before it is answered, the command that `undo` returns undoes what it did."""
        number, left_ms = await self.reserve_in_time()
        try:
            result = await self.call(body, number=number, timeout_ms=left_ms)
        except RefusedError:
            self.forget(number)
            raise
        except BaseException:
            self._start(self._undo(body, number, undo))
            raise
        self.forget(number)
        return result

    async def call_beside(self, body: Message) -> None:
        """Make a call without waiting for it. Returns at once."""
        self._start(self._surely(body))

    async def settle(self) -> None:
        """Wait until nothing is to be done for callers that have left."""
        while self._beside:
            await asyncio.wait(self._beside)

    async def abandon(self) -> None:
        """Do nothing more for them: the session has ended."""
        for task in self._beside:
            task.cancel()
        await self.settle()

    def _start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def _surely(self, body: Message, number: int | None = None) -> Result | None:
        """As `_answer`; a call that was not done, for want of room for its result, is made again as another one."""
        while (result := await self._answer(body, number)) is not None and result.reason == NO_ROOM:
            number = None
            await self.ended_within(self.ttl_ms / RENEWALS)
        return result

    async def _answer(self, body: Message, number: int | None = None) -> Result | None:
        """Repeat a call until it is answered; None, if the session ends first. Its number is forgotten."""
        own = self.reserve() if number is None else number
        try:
            while not self.ended.is_set():
                try:
                    return await self._send(body, own)
                except ClosedError:
                    return None
                except LATER:
                    await self.ended_within(self.ttl_ms / RENEWALS)
            return None
        finally:
            self.forget(own)

    async def _undo(self, body: Message, number: int, undo: Callable[[Result], Message | None]) -> None:
        """Undo a call. It is released first: so when it is repeated, it has its first result, or was never applied."""
        await self._answer(Release(number=number))  # one attempt: no room is made before `number` is forgotten
        result = await self._answer(body, number)
        command = undo(result) if result is not None and result.status == Status.OK else None
        if command is not None:
            await self._surely(command)

    # --- bids --------------------------------------------------------------------------------------------------------

    async def release(self, number: int) -> None:
        """End the bid of the call `number`. Returns when that is done, or when the session is not surely alive.

        The caller may be cancelled meanwhile: a live session keeps no bid that is not needed.
        """
        self.forget(number)
        task = self._start(self._surely(Release(number=number)))
        invalid = asyncio.ensure_future(self.wait_invalid())
        try:
            await asyncio.wait([task, invalid], return_when=asyncio.FIRST_COMPLETED)
        finally:
            invalid.cancel()
