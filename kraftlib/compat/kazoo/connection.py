"""A connection for kazoo's client that carries out its requests on a quorum of kraftlib.

Callers put requests into the client's queue and wait. An event loop in a thread of its own carries them out, one after
the other, so each client's requests are done in their order; it also renews the session, whatever the program does.
State changes are told on a third thread, which a listener may hold up without harm.

The attributes with an underscore are those that kazoo's client and its connection use of each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from kazoo.exceptions import (
    BadArgumentsError,
    ConnectionLoss,
    KazooException,
    SessionExpiredError,
)
from kazoo.protocol import connection as kazoos
from kazoo.protocol.serialization import Close
from kazoo.protocol.states import KeeperState

from kraftlib.compat.kazoo.nodes import session_number
from kraftlib.compat.kazoo.requests import Requests
from kraftlib.compat.kazoo.trouble import Trouble
from kraftlib.compat.kazoo.watches import Watches
from kraftlib.coordination.net.client import ClientAccess
from kraftlib.errors import (
    ConfigError,
    KraftError,
    OutcomeUnknownError,
    RefusedError,
    SessionEndedError,
    UnavailableError,
)
from kraftlib.recipes.session import Session
from kraftlib.runtime.client.home import Home
from kraftlib.types import Endpoint

CLOSE_S: Final = 3.0
"""The time that the last requests, and the end of the session, are given."""

CALL_MS: Final = 10_000
"""The least time in which a leader is looked for. A waiting caller is told earlier, when the session is not sure any
more."""

STATE_CHECKS: Final = 20
"""Within the session's time to live."""

PAUSE_S: Final = 0.05
FAILURE_PAUSE_S: Final = 0.5


class Waker:
    """Stands for the socket that wakes kazoo's connection when there is a request."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.is_closed = False

    def send(self, data: bytes) -> int:
        """Wake the connection. Raises: OSError, after it was closed."""
        if self.is_closed:
            raise OSError("the connection is closed")
        self._wake()
        return len(data)


class Socket:
    """Stands for the socket to ZooKeeper."""

    def close(self) -> None:
        """Do nothing. Patroni closes it so that kazoo connects anew with other times; there are none here."""


class Connection:
    """The connection of a client. `connect` makes an access to its hosts."""

    def __init__(self, client: Any, connect: Callable[[], ClientAccess]) -> None:
        self._client = client
        self._new_access = connect
        self._accesses: weakref.WeakSet[ClientAccess] = weakref.WeakSet()
        self._write_sock: Waker | None = None
        self._socket = Socket()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._home = Home()
        self._threads: list[Any] = []
        self._states: queue.SimpleQueue[tuple[str, Future[None]] | None] = queue.SimpleQueue()

    # --- as kazoo's client calls it ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect."""
        self._loop, self._home = asyncio.new_event_loop(), Home()
        self._wake = asyncio.Event()
        self._sure = asyncio.Event()
        self._stopping = asyncio.Event()
        self._has_session = False
        self._write_sock = Waker(self._woken_from_outside)
        engine = threading.Thread(target=self._run, args=(self._loop,), name="kraftlib-kazoo", daemon=True)
        self._threads = [engine, self._client.handler.spawn(self._tell_states)]
        engine.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Return whether the connection has ended within `timeout` seconds. The client has asked for it before."""
        # A listener may stop the client: its thread ends when the listener returns.
        others = [thread for thread in self._threads if thread is not threading.current_thread()]
        for thread in others:
            thread.join(timeout)
        if any(thread.is_alive() for thread in others):
            return False
        self._threads = []
        return True

    def close(self) -> None:
        """Let go of the rest. The connection can be started again."""
        if self._write_sock is not None:
            self._write_sock.is_closed = True
        self._write_sock = None

    def _connect(self, *arguments: Any) -> tuple[int, int]:
        """Return the times, in ms, that a connection may be silent and may take to be made. Nothing here asks for them:
        Patroni calls this from a function of its own that it puts in its place."""
        ttl_ms = self._client._session_timeout
        return silence_ms(ttl_ms), ttl_ms

    def check_process(self) -> None:
        """Raises: ClosedError, in a fork of the process that has started it, where no thread would answer."""
        self._home.check()

    def use(self, servers: Sequence[Endpoint]) -> None:
        """Ask these replicas from the next connection on."""
        self._on_loop(lambda: self._use(servers))

    def _use(self, servers: Sequence[Endpoint]) -> None:
        for access in self._accesses:
            access.use(servers)

    def _woken_from_outside(self) -> None:
        self._on_loop(self._woken)

    def _on_loop(self, call: Callable[[], None]) -> None:
        loop = self._loop
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile, and all that it would do is done
            if loop is not None:
                loop.call_soon_threadsafe(call)

    def _woken(self) -> None:
        self._wake.set()
        if self._client._stopped.is_set():
            self._stopping.set()
            self._sure.set()

    # --- telling -----------------------------------------------------------------------------------------------------

    def _tell_states(self) -> None:
        while (told := self._states.get()) is not None:
            state, done = told
            try:
                self._client._session_callback(state)
            finally:
                done.set_result(None)

    def _tell(self, state: str) -> Future[None]:
        done: Future[None] = Future()
        self._states.put((state, done))
        return done

    # --- sessions ----------------------------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._main())
        finally:
            self._loop = None
            self._tell(KeeperState.CLOSED)
            self._states.put(None)

    async def _main(self) -> None:
        self._tell(KeeperState.CONNECTING)
        stopping = asyncio.create_task(self._stopping.wait())
        while not self._client._stopped.is_set():
            life = asyncio.create_task(self._live())
            await asyncio.wait((life, stopping), return_when=asyncio.FIRST_COMPLETED)
            if self._has_session and not life.done():
                await asyncio.wait((life,), timeout=CLOSE_S)
            life.cancel()
            await asyncio.wait((life,))
            if not life.cancelled() and (error := life.exception()) is not None:
                self._client.logger.error("the session has ended: %s", error, exc_info=error)
                await asyncio.sleep(FAILURE_PAUSE_S)

    async def _live(self) -> None:
        """Open a session, and serve requests until it ends."""
        async with self._access() as access:
            session = await self._opened(access)
            if session is None:
                return
            self._has_session = True
            try:
                async with Watches(self._client, access, self._access) as watches:
                    await self._serve(session, watches)
            finally:
                with contextlib.suppress(TimeoutError):  # then it expires
                    async with asyncio.timeout(CLOSE_S):
                        await session.close()
                self._has_session = False

    def _access(self) -> ClientAccess:
        access = self._new_access()
        self._accesses.add(access)
        return access

    async def _opened(self, access: ClientAccess) -> Session | None:
        client = self._client
        ttl_ms = client._session_timeout
        trouble = Trouble(client.logger, "no session yet", pause_s=PAUSE_S)
        while not client._stopped.is_set():
            try:
                session = await Session.open(access, ttl_ms=ttl_ms, owner="kazoo", timeout_ms=max(ttl_ms, CALL_MS))
            except (RefusedError, OutcomeUnknownError) as error:
                await trouble.pause(error)
                continue
            client._session_id, client._session_passwd = session_number(session.opened), session.id.bytes
            self._sure.set()
            self._tell(KeeperState.CONNECTED)
            return session
        return None

    async def _serve(self, session: Session, watches: Watches) -> None:
        work = asyncio.create_task(self._work(session, watches))
        state = asyncio.create_task(self._follow_state(session, watches))
        try:
            await asyncio.wait((work, state), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, state):
                task.cancel()
            await asyncio.wait((work, state))
        if not self._client._stopped.is_set():
            # All waiting callers are told, and the client is empty, before there is another session.
            await asyncio.wrap_future(self._tell(KeeperState.EXPIRED_SESSION))
            self._tell(KeeperState.CONNECTING)
        if not work.cancelled():
            work.result()

    async def _follow_state(self, session: Session, watches: Watches) -> None:
        """Tell whether the session is surely alive, until it has ended."""
        was_sure = True
        while not session.ended.is_set():
            is_sure = session.unconfirmed_ms < silence_ms(session.ttl_ms)
            if is_sure != was_sure:
                was_sure = is_sure
                if is_sure:
                    self._sure.set()
                else:
                    self._sure.clear()
                    watches.forget()
                self._tell(KeeperState.CONNECTED if is_sure else KeeperState.CONNECTING)
            try:
                async with asyncio.timeout(session.ttl_ms / STATE_CHECKS / 1_000):
                    await session.ended.wait()
            except TimeoutError:
                continue

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _work(self, session: Session, watches: Watches) -> None:
        """Carry out requests in their order, until the last one or the end of the session."""
        requests = Requests(self._client, session, watches)
        while not session.ended.is_set():
            await self._sure.wait()
            try:
                request, waiting = self._client._queue.popleft()
            except IndexError:
                self._wake.clear()
                if not self._client._queue:
                    await self._wake.wait()
                continue
            if isinstance(request, Close) or request is kazoos._SESSION_EXPIRED:
                return
            if request is kazoos._CONNECTION_DROP:
                await self._drop(session, watches)
                continue
            entry = (request, waiting, None)
            self._client._pending.append(entry)
            await self._answer(entry, requests)

    async def _drop(self, session: Session, watches: Watches) -> None:
        """Behave as if the connection had been lost: `kazoo.testing` asks for it."""
        watches.forget()
        self._tell(KeeperState.CONNECTING)
        await session.renew()
        self._tell(KeeperState.CONNECTED)

    async def _answer(self, entry: tuple[Any, Any, None], requests: Requests) -> None:
        request, waiting, _ = entry
        result, failure = None, None
        try:
            result = await requests.carry_out(request)
        except (KazooException, KraftError, TimeoutError) as error:
            failure = as_kazoo(error)
        try:
            self._client._pending.remove(entry)
        except ValueError:
            return  # the connection was lost meanwhile, and the caller was told so
        self._client.last_zxid = max(self._client.last_zxid, requests.seen)
        if waiting is None:
            return
        if failure is None:
            waiting.set(result)
        else:
            waiting.set_exception(failure)


def silence_ms(ttl_ms: int) -> int:
    """Return how long a session may be without confirmation until the program is told that it is suspended.

    A third of its time, and where that is less than a second, up to two thirds, as with kazoo.
    """
    return max(ttl_ms // 3, min(ttl_ms * 2 // 3, 1_000))


def as_kazoo(error: Exception) -> Exception:
    """Return the error of kazoo that says the same."""
    if isinstance(error, KazooException):
        return error
    if isinstance(error, SessionEndedError):
        return SessionExpiredError(str(error))
    if isinstance(error, ConfigError | RefusedError) and not isinstance(error, UnavailableError):
        return BadArgumentsError(str(error))  # another attempt would meet it again
    # It was not carried out, or perhaps it was: kazoo has one name for both.
    return ConnectionLoss(str(error))
