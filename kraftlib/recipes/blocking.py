"""The recipes for threads: the same names and signatures, and every call waits for its end.

    with Recipes(access) as kraft:
        with kraft.lock("report") as term:
            write_report(fence=term.token)

The classes here are made from those of asyncio: a coroutine becomes a call that waits, an asynchronous iterator an
iterator. All of them run on one event loop in a thread of its own, which renews the session whatever the host does.

A thread cannot be cancelled: the body asks `term.is_valid()`, and fences its writes. When the block ends and the term
was lost meanwhile, TermLostError says so.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kraftlib.config import RaftConfig
from kraftlib.coordination.access import Access, Machine
from kraftlib.errors import ClosedError, ConfigError, KraftError, OutcomeUnknownError
from kraftlib.recipes import counting, face, groups, kraft, locks, map, session, terms
from kraftlib.recipes.holding import Holding
from kraftlib.recipes.signals import ExitAtSigterm
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.tls import TlsConfig
from kraftlib.types import Endpoint


class Loop:
    """An event loop in a thread. It begins all work that is handed to it, and cancels the rest when it is closed."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._lock = threading.RLock()  # amid a hand-over the collector may end an iterator, which is handed over, too
        self._is_closed = False  # guarded by the lock: from then on nothing is handed over
        self._thread = threading.Thread(target=self._main, name="kraftlib-recipes", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stopping.wait())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine and return its result. If this thread is interrupted, the coroutine is cancelled."""
        try:
            done = self._hand_over(work)
        except KraftError:
            work.close()
            raise
        try:
            return done.result()
        except CancelledError:
            if not self._is_closed:
                raise
            raise OutcomeUnknownError("these recipes were closed before this call had ended") from None
        finally:
            done.cancel()

    def _hand_over(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        if self.is_elsewhere:
            raise ConfigError(
                f"these recipes were opened by process {self._process}, whose thread is not here, in {os.getpid()}: "
                "open others after the fork"
            )
        with self._lock:
            if self._is_closed:
                raise ClosedError("these recipes are closed: nothing was sent")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end(self, values: Any) -> None:
        """Close an asynchronous iterator. It may be the collector that does so, on any thread, the loop's own too."""
        if self.closed:
            return
        if threading.current_thread() is self._thread:
            self._loop.create_task(values.aclose())
            return
        with suppress(ClosedError, OutcomeUnknownError):  # the loop has ended, and the iterator with it
            self.run(values.aclose())

    @property
    def is_elsewhere(self) -> bool:
        """Whether its thread runs in another process, of which this one is a fork."""
        return os.getpid() != self._process

    @property
    def closed(self) -> bool:
        """Whether there is nothing to end here."""
        return self._is_closed or self.is_elsewhere

    def close(self) -> None:
        """End the loop, after all work that was handed to it has begun."""
        if self.is_elsewhere:
            return
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()


class _Face:
    """Stands in a thread for an object on the loop."""

    def __init__(self, inner: Any, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop
        self._held: dict[int, list[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _outside(getattr(self._inner, name), self._loop)

    def _enter(self) -> Any:
        """Hold the inner object; or the object that it hands out, if it is one of those that several may enter."""
        if not isinstance(self._inner, Holding):
            return self
        held = self._loop.run(self._inner.acquire())
        self._held.setdefault(threading.get_ident(), []).append(held)
        return _outside(held, self._loop)

    def _exit(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        stack = self._held.get(threading.get_ident())
        self._loop.run((stack.pop() if stack else self._inner).end(error))


def _outside(value: Any, loop: Loop) -> Any:
    made = FACES.get(type(value))
    return value if made is None else made(value, loop)


def _inside(value: Any) -> Any:
    return value._inner if isinstance(value, _Face) else value


def _waiting(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method for threads that stands for `method`."""

    @functools.wraps(method)
    def call(self: _Face, /, *values: Any, **named: Any) -> Any:
        result = method(self._inner, *[_inside(one) for one in values], **{k: _inside(v) for k, v in named.items()})
        if inspect.isasyncgen(result):
            return _iterate(result, self._loop)
        if inspect.iscoroutine(result):
            result = self._loop.run(result)
        return _outside(result, self._loop)

    return call


def _iterate(values: Any, loop: Loop) -> Iterator[Any]:
    try:
        while True:
            try:
                yield loop.run(values.__anext__())
            except StopAsyncIteration:
                return
    finally:
        loop.end(values)


def _thread_face(cls: type) -> type[_Face]:
    members: dict[str, Any] = {"__doc__": cls.__doc__, "__module__": __name__}
    for base in reversed(cls.__mro__[:-1]):
        members |= {
            name: _waiting(member)
            for name, member in vars(base).items()
            if inspect.isfunction(member) and not name.startswith("_") and name != "bind"
        }
    if hasattr(cls, "__aenter__"):
        members |= {"__enter__": _Face._enter, "__exit__": _Face._exit}
    return type(cls.__name__, (_Face,), members)


FACES: Final[dict[type, type[_Face]]] = {
    cls: _thread_face(cls)
    for cls in (
        locks.Election,
        locks.Lock,
        locks.RWLock,
        locks.Semaphore,
        locks.Lease,
        map.ReplicatedMap,
        counting.Counter,
        counting.Barrier,
        counting.DoubleBarrier,
        groups.Party,
        groups.Queue,
        groups.LockingQueue,
        groups.Membership,
        groups.Claim,
        terms.Term,
        session.Session,
    )
}
"""The class for threads that stands for each class of asyncio."""


class _Opened:
    """Recipes on a loop of their own, which ends with them."""

    _loop: Loop
    _inner: Any
    _sigterm: ExitAtSigterm

    async def _open(self) -> None:
        raise NotImplementedError

    async def _close(self) -> None:
        await self._inner.close()

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._open())
        except BaseException:
            self.close()
            raise
        self._sigterm.__enter__()
        return self

    def close(self) -> None:
        """End the session, and with it all that it holds, and leave the access. Twice is allowed."""
        if self._loop.closed:
            return
        try:
            self._loop.run(self._close())
        finally:
            self._loop.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        finally:
            self._sigterm.__exit__(kind, error, trace)


class Recipes(_Opened, _thread_face(face.Recipes)):  # type: ignore[misc]
    """As `kraftlib.recipes.face.Recipes`. The access is entered, and left, on the loop of these recipes."""

    def __init__(
        self, access: Access, *, owner: str = "", ttl_ms: int = face.TTL_MS, timeout_ms: int = face.TIMEOUT_MS
    ) -> None:
        self._stack = AsyncExitStack()
        self._access = access
        self._sigterm = ExitAtSigterm()
        _Face.__init__(self, face.Recipes(access, owner=owner, ttl_ms=ttl_ms, timeout_ms=timeout_ms), Loop())

    async def _open(self) -> None:
        if isinstance(self._access, AbstractAsyncContextManager):
            await self._stack.enter_async_context(self._access)
        await self._inner.session()

    async def _close(self) -> None:
        try:
            await self._inner.close()
        finally:
            await self._stack.aclose()


class Kraft(_Opened, _thread_face(kraft.Kraft)):  # type: ignore[misc]
    """As `kraftlib.recipes.kraft.Kraft`."""

    def __init__(self, inner: kraft.Kraft) -> None:
        self._sigterm = ExitAtSigterm()
        _Face.__init__(self, inner, Loop())

    async def _open(self) -> None:
        await self._inner.__aenter__()


def open(
    config: RaftConfig | str | Path,
    *,
    machine: Machine | None = None,
    owner: str = "",
    ttl_ms: int = face.TTL_MS,
    timeout_ms: int = face.TIMEOUT_MS,
    **options: Any,
) -> Kraft:
    """Return what runs a replica in this process, for a `with`. See `kraftlib.open`."""
    return Kraft(kraft.open(config, machine=machine, owner=owner, ttl_ms=ttl_ms, timeout_ms=timeout_ms, **options))


def connect(
    servers: str | Iterable[Endpoint],
    *,
    tls: TlsConfig | None = None,
    sasl: SaslConfig | None = None,
    owner: str = "",
    ttl_ms: int = face.TTL_MS,
    timeout_ms: int = face.TIMEOUT_MS,
) -> Kraft:
    """Return a client of replicas elsewhere, for a `with`. See `kraftlib.connect`."""
    return Kraft(kraft.connect(servers, tls=tls, sasl=sasl, owner=owner, ttl_ms=ttl_ms, timeout_ms=timeout_ms))
