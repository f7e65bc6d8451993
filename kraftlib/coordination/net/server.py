"""Requests of clients: Call, Query and Watch, read, handed to the service and answered. On the engine's loop.

Answers leave in the order of the requests. So a Watch that waits for a change would hold up the answers behind it: a
further request over its connection ends its wait.

Requests wait for up to half a minute. So their bytes have one budget for all connections, and the work for a connection
ends with it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from kraftlib.codec.declarations import Message
from kraftlib.coordination.access import LINEARIZABLE, STALE, AtLeast, Consistency, Done, Machine
from kraftlib.coordination.net.service import Pull, Pulled, Service, done_of
from kraftlib.errors import BacklogFullError, ClosedError, ConfigError, RefusedError, ReplicaFailedError
from kraftlib.proposals.outcomes import code_of, text_of
from kraftlib.proposals.ports import Proposed
from kraftlib.runtime.client.home import Home
from kraftlib.runtime.client.node import Node
from kraftlib.runtime.net.api_versions import SERVICE
from kraftlib.runtime.net.transport import Peer, Work
from kraftlib.wire.apis import APIS, ErrorCode, PrivateApiKey
from kraftlib.wire.messages.call import CallRequest, CallResponse
from kraftlib.wire.messages.query import QueryRequest, QueryResponse
from kraftlib.wire.messages.watch import FROM_NOW, WatchRequest, WatchResponse

T = TypeVar("T")
Answering = Callable[[], Coroutine[Any, Any, Message]]

WAIT_MAX_MS: Final = 30_000
"""No request of a client is remembered for longer."""

WAITING_MAX_BYTES: Final = 64 * 1024 * 1024
"""The requests of all clients together that wait for their answers. Beyond it a request is refused, to be repeated."""

OVERHEAD_BYTES: Final = 8 * 1024
"""The size of a request that waits, beside its own bytes."""


class AccessServer:
    """Serves a machine to clients. One node has it as its `service`."""

    served = SERVICE

    def __init__(self, machine: Machine) -> None:
        self._machine: Final = machine
        self._node: Node | None = None
        self._service: Service | None = None
        self._home = Home()
        self._handing_over: Final = threading.Lock()
        """Held while work is handed to the loop, and at the end: the loop begins all work that came before."""
        self._working: set[Work] = set()
        self._waiting_bytes = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """The Watch that waits on each connection, by the identity of its peer."""

    @property
    def service(self) -> Service:
        """The service, once the node has begun. Raises: ClosedError."""
        if self._service is None:
            raise ClosedError("the replica is not started, or closed")
        return self._service

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` on the loop of the engine, from whichever loop. Raises: ClosedError, if that ends meanwhile."""
        try:
            self._home.check()
            with self._handing_over:
                is_here = (loop := self.service.loop) is asyncio.get_running_loop()
                doing = None if is_here else asyncio.run_coroutine_threadsafe(work, loop)
        except ClosedError:
            work.close()
            raise
        try:
            return await (work if doing is None else asyncio.wrap_future(doing))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise ClosedError("the replica was closed meanwhile") from None

    def begin(self, node: Node) -> None:
        """Take requests from now on."""
        self._node, self._home = node, Home()
        self._service = Service(node, self._machine)
        for key in (PrivateApiKey.CALL, PrivateApiKey.QUERY, PrivateApiKey.WATCH):
            node.router.serve(key, self._take)

    def end(self) -> None:
        """The node closes."""
        with self._handing_over:
            service, self._service = self._service, None
        if service is not None:
            service.end()
        for task in self._working:
            task.cancel()

    def _take(self, request_id: int, request: Message, peer: Peer) -> None:
        waiting = self._waiting.pop(id(peer), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        is_full = self._waiting_bytes > WAITING_MAX_BYTES
        self._waiting_bytes += _size(request)
        if isinstance(request, CallRequest) and not is_full:
            asyncio.get_running_loop().call_soon(self._begin, request_id, request, peer)  # this turn is for frames
            return
        woken: asyncio.Future[None] | None = None
        if isinstance(request, WatchRequest):
            # At once: the request that ends its wait may come in this very turn.
            woken = self._waiting[id(peer)] = asyncio.get_running_loop().create_future()
        task = self._start(request_id, request, peer, partial(self._work, request, woken, is_full=is_full))
        if woken is not None:
            task.add_done_callback(lambda _: self._waiting.get(id(peer)) is woken and self._waiting.pop(id(peer)))

    def _begin(self, request_id: int, request: CallRequest, peer: Peer) -> None:
        """Begin a call without a task: its first attempt is nearly always the last one."""
        node, service, begun = self._node, self._service, None
        if service is not None:
            begun = service.begin(request.command, timeout_ms=_bounded(request.timeout_ms))
        if node is None or service is None or begun is None:
            self._start(request_id, request, peer, partial(self._work, request, None, is_full=False))
            return
        self._working.add(begun)
        peer.work.add(begun)

        async def go_on() -> Message:
            return _called(await service.outcome(node.proposals.go_on(begun)))

        def told(proposed: Proposed | None) -> None:
            self._working.discard(begun)
            peer.work.discard(begun)
            if proposed is None:
                self._start(request_id, request, peer, go_on)
            else:
                self._waiting_bytes -= _size(request)
                node.router.respond(request_id, _called(done_of(proposed)))

        node.proposals.tell(begun, told)

    def _start(self, request_id: int, request: Message, peer: Peer, work: Answering) -> asyncio.Task[None]:
        """Answer a request with the outcome of `work`, by a task."""
        task = asyncio.ensure_future(self._answer(request_id, request, work))
        self._working.add(task)
        peer.work.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._waiting_bytes -= _size(request)
            self._working.discard(task)
            peer.work.discard(task)
            if task.cancelled() and self._service is not None and self._node is not None:
                self._node.router.respond(request_id, None)  # its connection is gone; the network forgets the request

        task.add_done_callback(done)
        return task

    async def _answer(self, request_id: int, request: Message, work: Answering) -> None:
        try:
            response = await work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            response = _refusal(request, error)
        if self._node is not None:
            self._node.router.respond(request_id, response)

    async def _work(self, request: Message, interrupted: asyncio.Future[None] | None, *, is_full: bool) -> Message:
        if is_full:
            raise BacklogFullError(f"the requests that wait here have more than {WAITING_MAX_BYTES} bytes; repeat it")
        match request:
            case CallRequest():
                return _called(await self.service.call(request.command, timeout_ms=_bounded(request.timeout_ms)))
            case QueryRequest():
                offset, answer = await self.service.query(
                    request.question, consistency=_consistency(request), timeout_ms=_bounded(request.timeout_ms)
                )
                return QueryResponse(offset=offset, answer=answer)
            case WatchRequest() if interrupted is not None:
                return await self._watch(request, interrupted)
        raise ConfigError(f"{type(request).__name__} is no request of a client")

    async def _watch(self, request: WatchRequest, interrupted: asyncio.Future[None]) -> WatchResponse:
        pulls = [Pull(watch.selector, None if watch.since == FROM_NOW else watch.since) for watch in request.watches]
        pulled = await self.service.pull(
            pulls,
            max_wait_ms=_bounded(request.max_wait_ms),
            max_bytes=request.max_bytes,
            interrupted=interrupted,
        )
        return WatchResponse(found=tuple(map(_found, pulled)))


def _called(done: Done) -> CallResponse:
    return CallResponse(offset=done.offset, epoch=done.epoch, result=done.result)


def _size(request: Message) -> int:
    match request:
        case CallRequest():
            return OVERHEAD_BYTES + len(request.command)
        case QueryRequest():
            return OVERHEAD_BYTES + len(request.question)
        case WatchRequest():
            return OVERHEAD_BYTES + sum(OVERHEAD_BYTES + len(watch.selector) for watch in request.watches)
    return OVERHEAD_BYTES


def _bounded(timeout_ms: int) -> int:
    return min(max(timeout_ms, 0), WAIT_MAX_MS)


def _consistency(request: QueryRequest) -> Consistency:
    match request.consistency:
        case 0:
            return LINEARIZABLE
        case 1:
            return AtLeast(request.offset)
        case 2:
            return STALE
    raise ConfigError(f"consistency={request.consistency} must be 0, 1 or 2")


def _found(pulled: Pulled) -> WatchResponse.Found:
    if pulled.error is not None:
        return WatchResponse.Found(error_code=ErrorCode.INVALID_REQUEST, error_message=text_of(pulled.error))
    return WatchResponse.Found(
        next_since=pulled.next_since,
        changes=tuple(
            WatchResponse.Change(offset=change.offset, full=change.full, data=change.data) for change in pulled.changes
        ),
    )


def _refusal(request: Message, error: Exception) -> Message:
    code = code_of(error)
    if isinstance(error, RefusedError):
        # A request that another leader would take is asked for again; a wrong one stays wrong.
        code = code_of(error.__cause__ or ConfigError())
    elif isinstance(error, ReplicaFailedError) and not isinstance(request, CallRequest):
        code = ErrorCode.BROKER_NOT_AVAILABLE  # nothing is in doubt: another replica may know
    response: Message = APIS[request.api_key].response(error_code=code, error_message=text_of(error))  # type: ignore[call-arg]
    return response
