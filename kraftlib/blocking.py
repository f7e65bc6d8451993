"""kraftlib for threads: the same names and signatures, and every call waits for its end.

    with kraftlib.blocking.open("replica-1.toml") as kraft, kraft.election("scheduler") as term: ...

    with kraftlib.blocking.RaftClient(config, state_machine=machine) as client:
        client.wait_for_leader()
        result = client.propose(value)

The replica always runs in its own thread, so `config.engine` makes no difference here: this client needs a loop anyway,
and the engine runs on it. Any number of threads may call; listeners and state machines are called on that loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random as chance
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

import attrs

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError, ConfigError, KraftError, OutcomeUnknownError, ReplicaFailedError
from kraftlib.recipes.blocking import connect as connect
from kraftlib.recipes.blocking import open as open
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.client import arguments
from kraftlib.runtime.client import raft_client as asyncio_face
from kraftlib.runtime.client.appender import MAX_IN_FLIGHT
from kraftlib.runtime.client.home import Home
from kraftlib.runtime.client.service import Service
from kraftlib.runtime.client.status import Status
from kraftlib.runtime.client.thread_appender import Appender
from kraftlib.runtime.client.thread_engine import loop_factory
from kraftlib.runtime.listener import Listener, StateMachine
from kraftlib.runtime.net.judge import Authorize
from kraftlib.runtime.net.transport import Transport
from kraftlib.runtime.snapshots.holds import RetentionHold
from kraftlib.runtime.snapshots.writing import OpenSnapshot
from kraftlib.runtime.waiters import Appended, again
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
from kraftlib.types import Endpoint, Epoch, LeaderAndEpoch, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey

logger = logging.getLogger("kraftlib.runtime")

LAST_CALLS_S: Final = 5.0
"""Time that the loop waits at its end for calls that are about to return."""

T = TypeVar("T")
R = TypeVar("R")


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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._running: Future[asyncio.AbstractEventLoop] = Future()
        self._closed = False
        self._failure: ReplicaFailedError | None = None
        """Why the replica failed, once its loop has ended."""
        self._home = Home()
        self._lock = threading.Lock()
        self._waits: set[Future[Any]] = set()
        """The calls that the loop has to answer; guarded by `_lock`, as is `_loop`."""

    # --- beginning and end -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the stores, listen, and take part in the quorum. A client is started once.

        Raises, and then nothing is left open: ConfigError, NotFormattedError, DirectoryInUseError, StorageError;
        ClosedError, if it was shut down before or meanwhile.
        """
        with self._lock:
            if self._thread is not None:
                raise ConfigError("a client is started once: make a new one")
            if self._closed:
                raise ClosedError(f"replica {self.node_id} was closed before it was started: make a new client")
            self._home = Home()
            self._thread = threading.Thread(target=self._main, name=f"kraftlib-{self._config.node_id}", daemon=True)
            self._thread.start()
        try:
            self._running.result()
            if self._closed:  # before the loop was there to be told
                raise ClosedError(f"replica {self.node_id} was closed while it was started: make a new client")
            starting = self._submit(self._client.start())
            try:
                starting.result()
            finally:
                starting.cancel()  # where this was interrupted
        except BaseException:
            self._end()
            raise

    def wait_closed(self) -> None:
        """Wait until the client was shut down.

        Raises: ReplicaFailedError, as soon as the replica stops itself, or its state machine is stopped.
        """
        self._home.check()
        try:
            self._wait(self._client.wait_closed())
        except ClosedError:
            if self._thread is None:
                raise
            # The loop has ended, and the client with it.
            if self._failure is not None:
                raise again(self._failure) from None

    def shutdown(self, timeout_ms: int | None = None) -> None:
        """Finish pending appends, transfer leadership, flush and close. Another call waits for the same end.

        In a forked child it does nothing: the replica is its parent's. If a listener or state machine calls it, it
        raises ConfigError and the replica continues.
        """
        if self._home.is_left:
            return
        with self._lock:
            self._closed = True
            if self._thread is None:
                return
        self._check_thread()
        try:
            self._wait(self._client.shutdown(timeout_ms))
        except ClosedError:
            pass  # another thread has closed it meanwhile
        finally:
            self._end()

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

    # --- appending ---------------------------------------------------------------------------------------------------

    def append(
        self,
        values: Iterable[T],
        *,
        epoch: Epoch | None = None,
        wait: str = "committed",
        timeout_ms: int = asyncio_face.FORWARD_TIMEOUT_MS,
    ) -> Appended:
        """Append `values` atomically; return their offsets, once they have reached the level `wait`."""
        return self._wait(self._client.append(values, epoch=epoch, wait=wait, timeout_ms=timeout_ms))

    def append_one(
        self,
        value: T,
        *,
        epoch: Epoch | None = None,
        wait: str = "committed",
        timeout_ms: int = asyncio_face.FORWARD_TIMEOUT_MS,
    ) -> Appended:
        """Append one value."""
        return self._wait(self._client.append_one(value, epoch=epoch, wait=wait, timeout_ms=timeout_ms))

    def propose(
        self, value: T, *, epoch: Epoch | None = None, timeout_ms: int = asyncio_face.FORWARD_TIMEOUT_MS
    ) -> Any:
        """Append one value, wait until the state machine of this replica has applied it, and return its result."""
        return self._wait(self._client.propose(value, epoch=epoch, timeout_ms=timeout_ms))

    def propose_many(
        self, values: Iterable[T], *, epoch: Epoch | None = None, timeout_ms: int = asyncio_face.FORWARD_TIMEOUT_MS
    ) -> tuple[Any, ...]:
        """Append `values` atomically, in one batch, and return the state machine's result of each."""
        return self._wait(self._client.propose_many(values, epoch=epoch, timeout_ms=timeout_ms))

    def appender(
        self,
        *,
        epoch: Epoch | None = None,
        wait: str = "committed",
        max_in_flight: int = MAX_IN_FLIGHT,
        on_settled: Callable[[Appended], object] | None = None,
    ) -> Appender[T]:
        """Return an object that takes many values from any thread and says how many have reached `wait`."""
        make = functools.partial(self._client.appender, epoch=epoch, wait=wait)
        inner = self._call(lambda: make(max_in_flight=max_in_flight, on_settled=on_settled))
        return Appender(inner, submit=self._submit, wait=self._wait, call=self._call, may_wait=self._check_thread)

    def prepare_append(self, epoch: Epoch, values: Sequence[T]) -> Offset:
        """Assign offsets to `values`, atomically, and return the last one; they are written once scheduled."""
        return self._call(self._client.prepare_append, epoch, values)

    def schedule_prepared_append(self) -> None:
        """Let everything that was prepared be written."""
        self._call(self._client.schedule_prepared_append)

    # --- listening ---------------------------------------------------------------------------------------------------

    def register(self, listener: Listener) -> None:
        """Feed `listener` from now on: the latest snapshot if there is one, then the log, then new batches.

        Before start() it is taken note of, and fed from the start on.
        """
        self._call(self._client.register, listener)

    def unregister(self, listener: Listener) -> None:
        """Stop feeding `listener`."""
        self._call(self._client.unregister, listener)

    def wait_for_leader(self, *, timeout_ms: int | None = None) -> LeaderAndEpoch:
        """Return the leader, as soon as one is known here. Raises: TimedOutError."""
        return self._wait(self._client.wait_for_leader(timeout_ms=timeout_ms))

    def wait_for_offset(self, offset: Offset, *, timeout_ms: int | None = None) -> None:
        """Return once the record at `offset` was applied on this replica. Raises: TimedOutError."""
        self._wait(self._client.wait_for_offset(offset, timeout_ms=timeout_ms))

    def read_barrier(self, *, timeout_ms: int = 5_000) -> Offset:
        """Wait until this replica has applied everything that was committed before this call; return the offset."""
        return self._wait(self._client.read_barrier(timeout_ms=timeout_ms))

    # --- leading -----------------------------------------------------------------------------------------------------

    def resign(self, epoch: Epoch) -> None:
        """Resign the leadership of `epoch`; do nothing if it is over already."""
        self._call(self._client.resign, epoch)

    def transfer_leadership(self, target_id: ReplicaId, *, timeout_ms: int = 5_000) -> LeaderAndEpoch:
        """Transfer leadership to the voter `target_id`, once it has the whole log; return the new leader."""
        return self._wait(self._client.transfer_leadership(target_id, timeout_ms=timeout_ms))

    def add_voter(
        self, key: ReplicaKey, endpoint: Endpoint | Mapping[str, Endpoint], *, timeout_ms: int = 30_000
    ) -> None:
        """Make the observer `key`, which is reached at `endpoint`, a voter; return when that is committed."""
        self._wait(self._client.add_voter(key, endpoint, timeout_ms=timeout_ms))

    def remove_voter(self, key: ReplicaKey, *, timeout_ms: int = 30_000) -> None:
        """Make the voter `key` an observer; return when that is committed."""
        self._wait(self._client.remove_voter(key, timeout_ms=timeout_ms))

    def upgrade_kraft_version(self, version: int = 1, *, timeout_ms: int = 30_000) -> None:
        """Make a static quorum a dynamic one, whose voters are recorded in the log; there is no way back."""
        self._wait(self._client.upgrade_kraft_version(version, timeout_ms=timeout_ms))

    def create_snapshot(self, values: Iterable[T] | None = None, *, offset: Offset | None = None) -> OffsetAndEpoch:
        """Write a snapshot that replaces every record below `offset`; return its id, once it is durable."""
        return self._wait(self._client.create_snapshot(values, offset=offset))

    def begin_snapshot(self, *, offset: Offset | None = None) -> OpenSnapshot:
        """Open a snapshot for writing that replaces every record below `offset`, by default the applied offset."""
        return self._call(lambda: self._client.begin_snapshot(offset=offset))

    def hold_log(self, name: str, *, offset: Offset | None = None, max_bytes: int | None = None) -> RetentionHold:
        """Keep the log from `offset` on for the reader `name`, until it advances, releases, or the log is too large."""
        return self._call(lambda: self._client.hold_log(name, offset=offset, max_bytes=max_bytes))

    # --- what is known -----------------------------------------------------------------------------------------------

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

    def leader_and_epoch(self) -> LeaderAndEpoch:
        """Return the leader and epoch as known here."""
        return self._client.leader_and_epoch()

    def high_watermark(self) -> Offset | None:
        """Return one past the last record known to be committed; None, while nothing is known."""
        return self._client.high_watermark()

    def log_end_offset(self) -> Offset:
        """Return one past the last record in the log of this replica, committed or not."""
        return self._client.log_end_offset()

    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Return the id of the newest snapshot of this replica."""
        return self._call(self._client.latest_snapshot_id)

    def kraft_version(self) -> int:
        """Return the finalized kraft.version: 0 for a static quorum, 1 for a dynamic one."""
        return self._client.kraft_version()

    def status(self) -> Status:
        """Return the state of this replica and its quorum, as it knows them; also after it was closed."""
        return self._call(self._client.status)

    def metrics(self) -> dict[str, float | str]:
        """Return Kafka's `raft-metrics` by name; also after it was closed."""
        return self._call(self._client.metrics)

    # --- the way to the loop -----------------------------------------------------------------------------------------

    def _wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run `coroutine` on the loop and wait for its end."""
        try:
            self._check_thread()
        except ConfigError:
            coroutine.close()
            raise
        try:
            return self._submit(coroutine).result()
        except CancelledError:
            # The loop has ended in the midst of the call, which may have done its work.
            raise OutcomeUnknownError(f"replica {self.node_id} was closed before this call had ended") from None

    def _check_thread(self) -> None:
        """Raises: ConfigError on the thread of the replica."""
        if threading.current_thread() is self._thread:
            raise ConfigError("a listener or state machine must not wait for its own replica: it would wait for ever")

    def _submit(self, coroutine: Coroutine[Any, Any, R]) -> Future[R]:
        """Have `coroutine` run on the loop. Raises: ClosedError, if that is not there."""
        try:
            self._home.check()
            with self._lock:
                if self._loop is None:
                    raise RuntimeError("there is no loop")
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
                self._waits.add(future)
        except ClosedError:
            coroutine.close()
            raise
        except RuntimeError:  # the loop has ended, perhaps in this very moment
            coroutine.close()
            state = "not started" if self._thread is None else "closed"
            raise ClosedError(f"replica {self.node_id} is {state}") from None
        future.add_done_callback(self._waits.discard)
        return future

    def _call(self, function: Callable[..., R], *arguments: Any) -> R:
        """Call `function` on the loop and wait for its end; here, if this is its thread, or if it has ended."""
        self._home.check()
        if threading.current_thread() is self._thread:
            return function(*arguments)

        async def call() -> R:
            return function(*arguments)

        try:
            called = self._submit(call())
        except ClosedError:
            return function(*arguments)
        try:
            return called.result()
        except CancelledError:  # the loop has ended before it came to it
            return function(*arguments)

    def _end(self) -> None:
        """Let the loop end, and wait for its thread."""
        wait([self._running])  # one that is about to run could not be told
        with self._lock, contextlib.suppress(RuntimeError):  # it may have ended by itself
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # --- on the loop -------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        running = self._running
        try:
            with asyncio.Runner(loop_factory=loop_factory(self._config.event_loop)) as runner:
                self._stop = asyncio.Event()
                self._loop = runner.get_loop()
                running.set_result(self._loop)
                runner.run(self._until_stopped())
        except BaseException as error:
            if running.done():
                raise
            running.set_exception(error)
        finally:
            self._refuse_the_rest()

    async def _until_stopped(self) -> None:
        """Run until the client is ended; then end the replica, even if the caller that started or closed it is gone."""
        try:
            await self._stop.wait()
        finally:
            try:
                await self._client.shutdown(0)
            except KraftError as error:  # who has closed it was told, too
                logger.warning("replica %d: closing: %s", self.node_id, error)
            await self._note_failure()
            # Calls of other threads were told how they end, and must come to hear of it.
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others, timeout=LAST_CALLS_S)

    async def _note_failure(self) -> None:
        """Keep the error that stopped the replica, for callers that come when the loop has ended."""
        try:
            await self._client.wait_closed()
        except ReplicaFailedError as failure:
            self._failure = failure
        except ClosedError:
            return  # it was never started

    def _refuse_the_rest(self) -> None:
        """Fail the calls that came too late for the loop."""
        with self._lock:
            self._loop, waits = None, list(self._waits)
        for future in waits:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(ClosedError(f"replica {self.node_id} is closed"))
