"""kraftlib for threads: the same names and signatures, and every call waits for its end.

    with kraftlib.blocking.open("replica-1.toml") as kraft, kraft.election("scheduler") as term: ...

    with kraftlib.blocking.RaftClient(config, state_machine=machine) as client:
        client.wait_for_leader()
        result = client.propose(value)

The methods here are made from those of asyncio, in three ways: `_waits` runs a coroutine on the client's loop, `_calls`
calls a function there, and `_looks` calls it on the thread of the caller.

The replica always runs in its own thread, so `config.engine` makes no difference here: this client needs a loop anyway,
and the engine runs on it. Any number of threads may call; listeners and state machines are called on that loop.
"""

from __future__ import annotations

import functools
import logging
import random as chance
import ssl
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import attrs

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError, KraftError, ReplicaFailedError
from kraftlib.recipes.blocking import connect as connect
from kraftlib.recipes.blocking import open as open
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.client import arguments
from kraftlib.runtime.client import raft_client as asyncio_face
from kraftlib.runtime.client.appender import MAX_IN_FLIGHT
from kraftlib.runtime.client.loop_thread import LoopThread
from kraftlib.runtime.client.service import Service
from kraftlib.runtime.client.thread_appender import Appender
from kraftlib.runtime.listener import Listener, StateMachine
from kraftlib.runtime.net.judge import Authorize
from kraftlib.runtime.net.transport import Transport
from kraftlib.runtime.waiters import Appended, again
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
from kraftlib.types import Endpoint, Epoch, ReplicaId, ReplicaKey

logger = logging.getLogger("kraftlib.runtime")

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


def _waits(
    method: Callable[Concatenate[asyncio_face.RaftClient[T], P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[RaftClient[T], P], R]:
    """Return the method for threads that runs `method` on the loop and waits for its end."""

    @functools.wraps(method)
    def call(self: RaftClient[T], /, *values: P.args, **named: P.kwargs) -> R:
        return self._thread.run(method(self._client, *values, **named))

    return call


def _calls(
    method: Callable[Concatenate[asyncio_face.RaftClient[T], P], R],
) -> Callable[Concatenate[RaftClient[T], P], R]:
    """Return the method for threads that calls `method` on the loop."""

    @functools.wraps(method)
    def call(self: RaftClient[T], /, *values: P.args, **named: P.kwargs) -> R:
        return self._thread.call(functools.partial(method, self._client, *values, **named))

    return call


def _looks(
    method: Callable[Concatenate[asyncio_face.RaftClient[T], P], R],
) -> Callable[Concatenate[RaftClient[T], P], R]:
    """Return the method for threads that calls `method` at once, since it reads one value that is always whole."""

    @functools.wraps(method)
    def call(self: RaftClient[T], /, *values: P.args, **named: P.kwargs) -> R:
        return method(self._client, *values, **named)

    return call


class RaftClient(Generic[T]):
    """One replica. See `kraftlib.RaftClient`, whose methods these are, without `await`.

    A waiting call can be interrupted (Ctrl-C). Its work continues, so an interrupted append may be committed.
    """

    def __init__(
        self,
        config: RaftConfig,
        *,
        log: ReplicatedLog | None = None,
        elections: QuorumStateStore | None = None,
        transport: Transport | None = None,
        state_machine: StateMachine | None = None,
        listener: Listener | None = None,
        serde: RecordSerde[T] | None = None,
        result_serde: RecordSerde[Any] | None = None,
        service: Service | None = None,
        server_ssl: ssl.SSLContext | None = None,
        client_ssl: ssl.SSLContext | None = None,
        authorize: Authorize | None = None,
        random: chance.Random | None = None,
    ) -> None:
        arguments.check_config(config)
        self._config = config
        self._client: asyncio_face.RaftClient[T] = asyncio_face.RaftClient(
            attrs.evolve(config, engine="inline"),
            log=log,
            elections=elections,
            transport=transport,
            state_machine=state_machine,
            listener=listener,
            serde=serde,
            result_serde=result_serde,
            service=service,
            server_ssl=server_ssl,
            client_ssl=client_ssl,
            authorize=authorize,
            random=random,
        )
        self._thread = LoopThread(config, last=self._end_replica)
        self._failure: ReplicaFailedError | None = None
        """Why the replica failed, once its loop has ended."""

    # --- beginning and end -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the stores, listen, and take part in the quorum. A client is started once.

        Raises, and then nothing is left open: ConfigError, NotFormattedError, DirectoryInUseError, StorageError;
        ClosedError, if it was shut down before or meanwhile.
        """
        self._thread.begin()
        try:
            starting = self._thread.submit(self._client.start())
            try:
                starting.result()
            finally:
                starting.cancel()  # where this was interrupted
        except BaseException:
            self._thread.end()
            raise

    def wait_closed(self) -> None:
        """Wait until the client was shut down.

        Raises: ReplicaFailedError, as soon as the replica stops itself, or its state machine is stopped.
        """
        self._thread.check_process()
        try:
            self._thread.run(self._client.wait_closed())
        except ClosedError:
            if not self._thread.has_begun:
                raise
            # The loop has ended, and the client with it.
            if self._failure is not None:
                raise again(self._failure) from None

    def shutdown(self, timeout_ms: int | None = None) -> None:
        """Finish pending appends, transfer leadership, flush and close. Another call waits for the same end.

        In a forked child it does nothing: the replica is its parent's. If a listener or state machine calls it, it
        raises ConfigError and the replica continues.
        """
        arguments.check_timeout(timeout_ms)
        if self._thread.is_left or not self._thread.close():
            return
        self._thread.check_caller()
        try:
            self._thread.run(self._client.shutdown(timeout_ms))
        except ClosedError:
            pass  # another thread has closed it meanwhile
        finally:
            self._thread.end()

    def close(self) -> None:
        """Shut down gracefully within `config.shutdown_timeout_ms`."""
        self.shutdown()

    def __enter__(self) -> RaftClient[T]:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _end_replica(self) -> None:
        """End the replica, and keep the error that stopped it for callers that come when the loop has ended."""
        try:
            await self._client.shutdown(0)
        except KraftError as error:  # the caller that closed it was told, too
            logger.warning("replica %d: closing: %s", self.node_id, error)
        try:
            await self._client.wait_closed()
        except ReplicaFailedError as failure:
            self._failure = failure
        except ClosedError:
            return  # it was never started

    # --- appending ---------------------------------------------------------------------------------------------------

    append = _waits(asyncio_face.RaftClient.append)
    append_one = _waits(asyncio_face.RaftClient.append_one)
    propose = _waits(asyncio_face.RaftClient.propose)
    propose_many = _waits(asyncio_face.RaftClient.propose_many)
    prepare_append = _calls(asyncio_face.RaftClient.prepare_append)
    schedule_prepared_append = _calls(asyncio_face.RaftClient.schedule_prepared_append)

    def appender(
        self,
        *,
        epoch: Epoch | None = None,
        wait: str = "committed",
        max_in_flight: int = MAX_IN_FLIGHT,
        on_settled: Callable[[Appended], object] | None = None,
    ) -> Appender[T]:
        """Return an object that takes many values from any thread and says how many have reached `wait`."""
        thread = self._thread
        make = functools.partial(self._client.appender, epoch=epoch, wait=wait)
        inner = thread.call(lambda: make(max_in_flight=max_in_flight, on_settled=on_settled))
        return Appender(inner, submit=thread.submit, wait=thread.run, call=thread.call, may_wait=thread.check_caller)

    # --- listening ---------------------------------------------------------------------------------------------------

    register = _calls(asyncio_face.RaftClient.register)
    unregister = _calls(asyncio_face.RaftClient.unregister)
    wait_for_leader = _waits(asyncio_face.RaftClient.wait_for_leader)
    wait_for_offset = _waits(asyncio_face.RaftClient.wait_for_offset)
    read_barrier = _waits(asyncio_face.RaftClient.read_barrier)

    # --- leading, voters, snapshots ----------------------------------------------------------------------------------

    resign = _calls(asyncio_face.RaftClient.resign)
    transfer_leadership = _waits(asyncio_face.RaftClient.transfer_leadership)
    add_voter = _waits(asyncio_face.RaftClient.add_voter)
    remove_voter = _waits(asyncio_face.RaftClient.remove_voter)
    upgrade_kraft_version = _waits(asyncio_face.RaftClient.upgrade_kraft_version)
    create_snapshot = _waits(asyncio_face.RaftClient.create_snapshot)
    begin_snapshot = _calls(asyncio_face.RaftClient.begin_snapshot)
    hold_log = _calls(asyncio_face.RaftClient.hold_log)

    # --- what is known -----------------------------------------------------------------------------------------------

    leader_and_epoch = _looks(asyncio_face.RaftClient.leader_and_epoch)
    high_watermark = _looks(asyncio_face.RaftClient.high_watermark)
    log_end_offset = _looks(asyncio_face.RaftClient.log_end_offset)
    kraft_version = _looks(asyncio_face.RaftClient.kraft_version)
    latest_snapshot_id = _calls(asyncio_face.RaftClient.latest_snapshot_id)
    status = _calls(asyncio_face.RaftClient.status)
    metrics = _calls(asyncio_face.RaftClient.metrics)

    @property
    def node_id(self) -> ReplicaId:
        """Number of this replica."""
        return self._config.node_id

    @property
    def key(self) -> ReplicaKey:
        """Its id and the id of its directory, by which a voter set of kraft.version 1 names it."""
        return self._client.key

    @property
    def config(self) -> RaftConfig:
        """The configuration of the replica."""
        return self._config

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens."""
        return self._client.endpoint
