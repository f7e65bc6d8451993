"""Replicas in one thread on a clock that jumps: what takes a quorum seconds of waiting takes it milliseconds here.

The event loop never waits: when nothing is left to be done it is at once the time of the next timer. That holds as
long as no other thread can have news, so what a replica does on threads of its own is done here when it is asked for,
and its end is heard of one turn later, as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from unittest import mock

from kraftlib.runtime import background
from kraftlib.runtime import loop as loop_module
from kraftlib.runtime.client import node
from kraftlib.runtime.pace import Pacer
from kraftlib.storage.interface import ReplicatedLog

T = TypeVar("T")
BEGIN_S = 1_000.0
WALL_CLOCK_MS = 1_700_000_000_000


class NothingLeftError(Exception):
    """Everybody waits, and no timer is set: on a real clock this would be a hang."""


class _Selector(selectors.DefaultSelector):
    now_s = BEGIN_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeftError("nothing is left to be done, and somebody still waits")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class HurriedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is what its timers say."""

    def __init__(self) -> None:
        self._hurried = _Selector()
        super().__init__(self._hurried)

    def time(self) -> float:
        return self._hurried.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever awaits it is to have it
            future.set_exception(error)
        return future


class _Disk:
    """In place of a thread: does it at once, and tells in a later turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, name: str = "") -> None:
        self._loop = loop

    def run(self, function: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        result, error = None, None
        try:
            result = function()
        except Exception as raised:  # noqa: BLE001 - whatever it is, the executor must hear of it
            error = raised
        self._loop.call_soon(done, result, error)

    def flush(self, log: ReplicatedLog, done: Callable[[Any, BaseException | None], None]) -> None:
        self.run(log.flush, done)

    def close(self) -> None:
        """Nothing is ever under way."""

    def close_within(self, seconds: float | None) -> bool:
        """Nothing is ever under way."""
        return True


@contextlib.contextmanager
def hurried() -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
    """Yield what runs a coroutine in such a loop; the replicas in it think in its time."""
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        loop = runner.get_loop()

        def now_ms() -> int:
            return int(loop.time() * 1_000 + 1e-6)

        def wall_clock_ms() -> int:
            return WALL_CLOCK_MS + now_ms()

        def pacer() -> Pacer:
            return Pacer(clock_ns=lambda: 0)  # nobody else wants a turn

        with (
            mock.patch.object(loop_module, "monotonic_ms", now_ms),
            mock.patch.object(loop_module, "wall_clock_ms", wall_clock_ms),
            mock.patch.object(node, "ThreadDisk", _Disk),
            mock.patch.object(background, "ThreadDisk", _Disk),
            mock.patch.object(background, "Pacer", pacer),
        ):
            yield runner.run
