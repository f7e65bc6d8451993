"""Appends of those who append much: values go in without a future each, and progress comes out as an offset.

    put --> waiting values --one chunk at a time--> the engine's append --> settled, end_offset

All values that wait when a chunk has settled make the next one, so a chunk grows with the load. One chunk is on its way
at a time, and after an error none is sent. So the appended values are always a beginning of the given ones, in their
order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from types import TracebackType
from typing import Final, Generic, TypeVar

from kraftlib.errors import BacklogFullError, ClosedError, ConfigError, OutcomeUnknownError, RecordTooLargeError
from kraftlib.records.batch import HEADER_SIZE
from kraftlib.records.serde import as_bytes
from kraftlib.records.values import RECORD_OVERHEAD_MAX
from kraftlib.runtime.listener import is_ctrl_c
from kraftlib.runtime.waiters import Appended
from kraftlib.types import Offset

MAX_IN_FLIGHT: Final = 10_000
RETRY_S: Final = 0.005
"""Pause before a chunk is offered again that found the backlog full: others fill it, too."""

_PIECE: Final = 256
"""Values that are looked at together."""

T = TypeVar("T")

Append = Callable[[Sequence[bytes]], "asyncio.Future[Appended]"]


class Appender(Generic[T]):
    """Appends values in the order in which they are put. Made by `RaftClient.appender`; all calls on its loop.

    `async with` flushes at its end; where its body has failed, values that were not sent yet are never appended.
    """

    def __init__(
        self,
        append: Append,
        to_bytes: Callable[[T], bytes],
        *,
        max_in_flight: int,
        batch_max_bytes: int,
        on_settled: Callable[[Appended], object] | None,
    ) -> None:
        if max_in_flight < 1:
            raise ConfigError(f"max_in_flight={max_in_flight} must be at least 1")
        self.max_in_flight: Final = max_in_flight
        self.taken = 0
        """Number of values that were put."""
        self.settled = 0
        """Number of values, from the first one on, that have reached the level that is waited for."""
        self.end_offset: Offset | None = None
        """One past the record of the last settled value; None before the first."""
        self._append: Final = append
        self._to_bytes: Final = to_bytes
        self._max_bytes: Final = batch_max_bytes - HEADER_SIZE
        self._on_settled: Final = on_settled
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque()
        self._chunk: list[bytes] = []
        self._bytes = 0
        """Of values that are not settled, with the most that each may take in a batch."""
        self._sending = False
        self._sent: asyncio.Future[Appended] | None = None
        """The chunk that is on its way."""
        self._error: BaseException | None = None
        self._moved = asyncio.Event()
        """Set, and replaced, when values have settled or none will any more."""

    async def put(self, value: T) -> None:
        """Take `value`; wait first while `max_in_flight` values, or as many bytes as a batch holds, are on their way.

        Raises: ConfigError, TypeError, RecordTooLargeError for a value that cannot be appended, which changes nothing;
        ClosedError after `close`; and the error that has ended this appender (see `flush`).
        """
        await self.put_encoded((self.encoded(value),))

    async def put_many(self, values: Iterable[T]) -> None:
        """Take `values` one after the other, each as `put` does; for a tenth of what that costs. They are read ahead of
        what has room, by up to 256."""
        left = iter(values)
        while piece := list(islice(left, _PIECE)):
            encoded = self._all_encoded(piece)
            if encoded is not None:
                await self.put_encoded(encoded)
            else:
                for value in piece:
                    await self.put(value)

    async def put_encoded(self, values: Sequence[bytes]) -> None:
        """Take what `encoded` has returned."""
        start, count = 0, len(values)
        while start < count:
            while self._error is not None or self._is_full:
                await self._progress()
            end = min(count, start + self.max_in_flight - (self.taken - self.settled))
            while (size := _room_of(values[start:end])) > self._max_bytes - self._bytes and end > start + 1:
                end = (start + end) // 2
            self._waiting += values[start:end]
            self._bytes += size
            self.taken += end - start
            start = end
            if not self._sending:
                # At the end of the turn: values that are put until then go together.
                self._sending = True
                self._loop.call_soon(self._send)

    async def flush(self) -> Offset | None:
        """Wait until everything that was put has settled; return `end_offset`.

        Raises the error that has ended this appender, as `RaftClient.append` does. Then the first `settled` values are
        appended. Those behind them are not, unless it is an OutcomeUnknownError or a ReplicaFailedError: some of those
        may be. After `close` it waits for the values that were on their way.
        """
        return await self.reach(self.taken)

    async def reach(self, count: int) -> Offset | None:
        """Wait until `count` values have settled; return `end_offset`. Raises as `flush` does."""
        while self.settled < count:
            if self._sent is None:
                await self._progress()
            else:
                await self._moved.wait()
        return self.end_offset

    def close(self) -> None:
        """Send nothing more. Values on their way still settle."""
        if self._error is None:
            self._end(ClosedError("the appender was closed before these values were sent: they were not appended"))

    async def __aenter__(self) -> Appender[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self.close()

    def encoded(self, value: T) -> bytes:
        """Return the bytes of `value`, which can be appended. For any thread. Raises as `put` does."""
        data = as_bytes(self._to_bytes(value))
        if not data:
            raise ConfigError("a value must not be empty: Kafka's readers reject it")
        if len(data) + RECORD_OVERHEAD_MAX > self._max_bytes:
            raise RecordTooLargeError(
                f"a value of {len(data)} bytes does not fit into a batch: an appender takes at most "
                f"{self._max_bytes - RECORD_OVERHEAD_MAX}; see batch_max_bytes"
            )
        return data

    def _all_encoded(self, values: Sequence[T]) -> list[bytes] | None:
        """Return the bytes of `values`; None, if one of them cannot be appended. Then `encoded` says why."""
        try:
            encoded = [self._to_bytes(value) for value in values]  # a `map` would end at a StopIteration
        except Exception:  # noqa: BLE001 - it is raised again where that value's turn has come
            return None
        if {*map(type, encoded)} != {bytes} or not all(encoded):
            return None
        return encoded if max(map(len, encoded)) + RECORD_OVERHEAD_MAX <= self._max_bytes else None

    @property
    def _is_full(self) -> bool:
        return self.taken - self.settled >= self.max_in_flight or self._bytes >= self._max_bytes

    async def _progress(self) -> None:
        """Wait until values have settled. Raises the error after which none will."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        await self._moved.wait()

    def _send(self) -> None:
        """Send the next chunk, or again the one that found no room."""
        if self._error is not None:
            return
        self._chunk = self._chunk or self._next_chunk()
        try:
            self._sent = self._append(self._chunk)
        except Exception as error:  # noqa: BLE001 - it is told to those who put values
            self._refused(error)
        else:
            self._sent.add_done_callback(self._answered)

    def _next_chunk(self) -> list[bytes]:
        """Take the waiting values that fit into one batch: at least one."""
        waiting = self._waiting
        if self._bytes <= self._max_bytes:  # nothing else is on its way
            chunk = list(waiting)
            waiting.clear()
            return chunk
        chunk, size = [], 0
        while (size := size + len(waiting[0]) + RECORD_OVERHEAD_MAX) <= self._max_bytes:
            chunk.append(waiting.popleft())
        return chunk

    def _answered(self, sent: asyncio.Future[Appended]) -> None:
        self._sent = None
        if sent.cancelled():
            self._end(OutcomeUnknownError("the replica has ended; whether these values were appended is unknown"))
        elif (error := sent.exception()) is not None:
            self._refused(error)
        else:
            self._settle(sent.result())

    def _refused(self, error: BaseException) -> None:
        if not isinstance(error, BacklogFullError):
            self._end(error)  # also after `close`, which speaks of values that were not sent
        elif self._error is None:
            self._loop.call_later(RETRY_S, self._send)
        else:
            self._wake()

    def _settle(self, appended: Appended) -> None:
        chunk, self._chunk = self._chunk, []
        self.settled += len(chunk)
        self.end_offset = appended.last_offset + 1
        self._bytes -= _room_of(chunk)
        self._sending = bool(self._waiting) and self._error is None
        if self._on_settled is not None:
            try:
                self._on_settled(appended)
            except BaseException as error:
                # A callback that fails ends its appender, and says so there. A caller that flushes was not cancelled.
                self._end(error if isinstance(error, Exception) else RuntimeError(f"{error!r} was raised"))
                if is_ctrl_c(error):
                    raise
        self._wake()
        if self._sending:
            self._send()

    def _end(self, error: BaseException) -> None:
        self._error = error
        self._waiting.clear()
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _room_of(values: Sequence[bytes]) -> int:
    """Return the most bytes that `values` take in a batch."""
    return sum(map(len, values)) + RECORD_OVERHEAD_MAX * len(values)
