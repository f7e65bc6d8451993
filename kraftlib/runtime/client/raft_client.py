"""`RaftClient`: one replica of a quorum, inside your own process.

    async with RaftClient(config, state_machine=machine) as client:
        await client.wait_for_leader()
        result = await client.propose(value)

This is the asyncio client; `kraftlib.blocking.RaftClient` has the same names and signatures for threads. It is thin. In
`kraftlib.runtime.client`, `node` has the replica, `engine` its loop and thread, and `lifetime` its start and end.
"""

from __future__ import annotations

import asyncio
import random as chance
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, cast

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError, ConfigError, NotLeaderError, ReplicaFailedError, TimedOutError
from kraftlib.records.serde import BytesSerde, RecordSerde, as_bytes
from kraftlib.runtime.client import arguments
from kraftlib.runtime.client.appender import MAX_IN_FLIGHT, Appender
from kraftlib.runtime.client.lifetime import Lifetime
from kraftlib.runtime.client.node import Node
from kraftlib.runtime.client.parts import Parts
from kraftlib.runtime.client.service import Service
from kraftlib.runtime.client.status import Status
from kraftlib.runtime.client.voter_changes import VoterChangeRequest, addition, removal, upgrade
from kraftlib.runtime.listener import Listener, StateMachine
from kraftlib.runtime.net.judge import Authorize
from kraftlib.runtime.net.transport import Transport
from kraftlib.runtime.snapshots.holds import RetentionHold
from kraftlib.runtime.snapshots.writing import OpenSnapshot
from kraftlib.runtime.waiters import COMMITTED, Appended, Post, level_of
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
from kraftlib.types import Endpoint, Epoch, LeaderAndEpoch, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.validators import check_whole_timeout

T = TypeVar("T")

FORWARD_TIMEOUT_MS: Final = 5_000
"""Time for which an append looks for a leader that takes it."""


class RaftClient(Generic[T]):
    """One replica. `T` is the type of the values of the serde; without a serde it is bytes.

    `log` and `elections` replace the stores in `config.directory`, `transport` replaces TCP. A `state_machine` gets
    every committed record and its results come back to `propose`; a `listener` gets batches, snapshots and leaders, and
    more of them may be registered later. `result_serde` carries results of the state machine from the leader to the
    replica that proposed; None and bytes need none, and by default other results must have a JSON form.
    `service` answers requests of clients that are no replicas, on the same port, as `kraftlib.coordination.net` and
    `kraftlib.controller` do. `authorize(peer, api_key)` says whether a peer may send requests of an API, on the
    engine's thread, where `config.access` allows it; a refused peer gets CLUSTER_AUTHORIZATION_FAILED. `random` makes
    elections repeatable in tests.
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
        self._parts = Parts(
            log=log,
            elections=elections,
            transport=transport,
            state_machine=state_machine,
            serde=serde,
            result_serde=result_serde,
            service=service,
            server_ssl=server_ssl,
            client_ssl=client_ssl,
            authorize=authorize,
            random=random,
        )
        arguments.check_parts(config, self._parts, listener)
        self._config = config
        self._has_machine = state_machine is not None
        self._listeners = [listener] if listener is not None else []
        used = serde if serde is not None else cast(RecordSerde[T], BytesSerde())
        self._to_bytes = used.to_bytes
        kind: object = type(used)
        self._bare = kind is BytesSerde  # one that is derived from it may do more
        self._life = Lifetime(config, self._open_node)
        self._engine = self._life.engine
        self._running = self._life.running
        # Bound late, so that the hot path has no test for being started.
        self._append_one: Callable[[bytes, Epoch | None, int], asyncio.Future[Appended]] = self._not_started

    def _open_node(
        self, post: Post, on_failure: Callable[[ReplicaFailedError], None], on_closed: Callable[[], None]
    ) -> Node:
        return self._parts.open_node(
            self._config, self._listeners, post=post, on_failure=on_failure, on_closed=on_closed
        )

    # --- beginning and end -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the stores, listen, and take part in the quorum. A client is started once.

        Raises, and then nothing is left open: ConfigError, NotFormattedError, DirectoryInUseError, StorageError;
        ClosedError, if it was shut down before.
        """
        await self._life.start()
        self._append_one = self._engine.append_one

    def _not_started(self, value: bytes, epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        raise ClosedError(f"replica {self.node_id} is not started: nothing was appended")

    async def wait_closed(self) -> None:
        """Wait until the client was shut down.

        Raises: ReplicaFailedError, as soon as the replica stops itself, or its state machine is stopped. In the second
        case the replica votes and replicates on, until it is shut down, but does not lead.
        """
        await self._life.wait_closed()

    async def shutdown(self, timeout_ms: int | None = None) -> None:
        """Finish pending appends, transfer leadership, flush and close. Another call waits for the same end.

        A cancelled shutdown continues. In a forked child it does nothing: the replica is its parent's.
        `timeout_ms` bounds the pending appends and the transfer; by default it is `config.shutdown_timeout_ms`, and 0
        closes at once. Appends that are still pending then fail with ClosedError (not written) or OutcomeUnknownError.
        """
        arguments.check_timeout(timeout_ms)
        await self._life.shutdown(timeout_ms)

    async def close(self) -> None:
        """Shut down gracefully within `config.shutdown_timeout_ms`."""
        await self.shutdown()

    async def __aenter__(self) -> RaftClient[T]:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- appending ---------------------------------------------------------------------------------------------------

    async def append(
        self,
        values: Iterable[T],
        *,
        epoch: Epoch | None = None,
        wait: str = "committed",
        timeout_ms: int = FORWARD_TIMEOUT_MS,
    ) -> Appended:
        """Append `values` atomically, in one batch; return their offsets, once they have reached the level `wait`.

        `wait` is "appended" (written by the leader, not durable), "flushed" (durable there), "committed" (durable on a
        majority: never lost) or "applied" (by the state machine here; the results come along). On a replica that does
        not lead they are forwarded: for up to `timeout_ms` it looks for a leader that takes them; 0 asks this replica
        alone. `epoch` makes sure that this replica still leads the epoch in which the values were decided, and then
        nothing is forwarded.

        Raises, and then nothing was appended: NotLeaderError, BacklogFullError, RecordTooLargeError, ClosedError,
        ConfigError (no values, an empty one, an epoch that is not known yet). Raises OutcomeUnknownError, if leadership
        was lost after they were written, or the leader gave no answer, and ReplicaFailedError, if the replica stopped
        itself.
        """
        data, level = self._encoded(values), level_of(wait)
        check_whole_timeout(timeout_ms, least=0)
        try:
            return await self._running().append(data, epoch, level)
        except NotLeaderError:
            if epoch is not None or not self._forwards(timeout_ms):
                raise
        return await self._forward(data, level, timeout_ms)

    async def append_one(
        self,
        value: T,
        *,
        epoch: Epoch | None = None,
        wait: str = "committed",
        timeout_ms: int = FORWARD_TIMEOUT_MS,
    ) -> Appended:
        """Append one value, like `append([value])` but faster."""
        # A bare value of the right type is its own bytes, and on this path even a call that says so counts.
        data: Any = value if type(value) is bytes and self._bare else as_bytes(self._to_bytes(value))
        level = COMMITTED if wait == "committed" else level_of(wait)
        if timeout_ms is not FORWARD_TIMEOUT_MS:
            check_whole_timeout(timeout_ms, least=0)
        try:
            return await self._append_one(data, epoch, level)
        except NotLeaderError:
            if epoch is not None or not self._forwards(timeout_ms):
                raise
        return await self._forward([data], level, timeout_ms)

    def _forwards(self, timeout_ms: int) -> bool:
        return timeout_ms > 0 and self._config.private_apis

    async def _forward(self, data: Sequence[bytes], level: int, timeout_ms: int) -> Appended:
        engine = self._running()
        promise = engine.ask(lambda promise: engine.node.forward(promise, data, level, timeout_ms))
        return cast(Appended, await promise)

    def _encoded(self, values: Iterable[T]) -> list[bytes]:
        data: list[Any] = list(values)
        # Types are looked at in C: those of a thousand values take as long as one call of the serde.
        if not self._bare or not set(map(type, data)) <= {bytes}:
            to_bytes = self._to_bytes
            data = [to_bytes(value) for value in data]  # a `map` would end at a StopIteration, and drop the rest
        return data if set(map(type, data)) <= {bytes} else list(map(as_bytes, data))

    async def propose(self, value: T, *, epoch: Epoch | None = None, timeout_ms: int = FORWARD_TIMEOUT_MS) -> Any:
        """Append one value, wait until the state machine of this replica has applied it, and return its result.

        Forwards as `append` does. `append_one(value, wait="applied")` returns offset and epoch, too.
        """
        if not self._has_machine:
            raise ConfigError("propose() returns a state machine's result, and this client has none: use append_one()")
        appended = await self.append_one(value, epoch=epoch, wait="applied", timeout_ms=timeout_ms)
        return appended.results[0]

    async def propose_many(
        self, values: Iterable[T], *, epoch: Epoch | None = None, timeout_ms: int = FORWARD_TIMEOUT_MS
    ) -> tuple[Any, ...]:
        """Append `values` atomically, in one batch, and return the state machine's result of each; as `propose`."""
        if not self._has_machine:
            raise ConfigError("propose_many() returns results, and this client has no state machine: use append()")
        return (await self.append(values, epoch=epoch, wait="applied", timeout_ms=timeout_ms)).results

    def appender(
        self,
        *,
        epoch: Epoch | None = None,
        wait: str = "committed",
        max_in_flight: int = MAX_IN_FLIGHT,
        on_settled: Callable[[Appended], object] | None = None,
    ) -> Appender[T]:
        """Return an object that takes many values, one after the other, and says how many have reached `wait`.

        For an application that appends many values: none of them costs a future or a task. Nothing is forwarded, so
        this replica must lead. `put` waits while `max_in_flight` values are on their way. `on_settled` is called on the
        client's loop with the offsets of the next values that have reached `wait`, in the order in which they were put;
        the results of the state machine come along if that is "applied". `epoch` is as for `append`.
        """
        arguments.check_number("max_in_flight", max_in_flight)
        engine, level = self._running(), level_of(wait)
        return Appender(
            lambda values: engine.append(values, epoch, level),
            self._to_bytes,
            max_in_flight=max_in_flight,
            batch_max_bytes=min(self._config.batch_max_bytes, self._config.backlog_max_bytes),
            on_settled=on_settled,
        )

    def prepare_append(self, epoch: Epoch, values: Sequence[T]) -> Offset:
        """Assign offsets to `values`, atomically, and return the last one; they are written once scheduled.

        Their outcome is not reported: look for them in `Listener.handle_commit`. Raises as `append` does.
        """
        arguments.check_number("epoch", epoch)
        data = self._encoded(values)
        engine = self._running()
        engine.check_caller()
        return engine.call(lambda: engine.node.appends.prepare(data, epoch=epoch))

    def schedule_prepared_append(self) -> None:
        """Let everything that was prepared be written."""
        engine = self._running()
        engine.check_caller()
        engine.call(engine.node.appends.schedule_prepared)

    # --- listening ---------------------------------------------------------------------------------------------------

    def register(self, listener: Listener) -> None:
        """Feed `listener` from now on: the latest snapshot if there is one, then the log, then new batches.

        Before start() it is noted, and fed from the start on.
        """
        arguments.check_listener(listener)
        if self._life.is_ahead:
            self._listeners.append(listener)
            return
        engine = self._running()
        engine.check_caller()
        engine.call(lambda: engine.node.applier.register(listener))

    def unregister(self, listener: Listener) -> None:
        """Stop feeding `listener`."""
        if self._life.is_ahead:
            self._listeners = [each for each in self._listeners if each is not listener]
            return
        engine = self._running()
        engine.check_caller()
        engine.call(lambda: engine.node.applier.unregister(listener))

    async def wait_for_leader(self, *, timeout_ms: int | None = None) -> LeaderAndEpoch:
        """Return the leader, as soon as one is known here. Raises: TimedOutError."""
        arguments.check_timeout(timeout_ms)
        engine = self._running()
        return cast(LeaderAndEpoch, await self._within(timeout_ms, "a leader", engine.ask(engine.node.wait_for_leader)))

    async def wait_for_offset(self, offset: Offset, *, timeout_ms: int | None = None) -> None:
        """Return once the record at `offset` was applied on this replica.

        Raises: TimedOutError; ReplicaFailedError, if the state machine, or without one any registered listener, failed.
        """
        arguments.check_number("offset", offset)
        arguments.check_timeout(timeout_ms)
        engine = self._running()
        promise = engine.ask(lambda promise: engine.node.wait_for_offset(offset, promise))
        await self._within(timeout_ms, f"the record at offset {offset}", promise)

    async def read_barrier(self, *, timeout_ms: int = 5_000) -> Offset:
        """Wait until this replica has applied everything that was committed before this call; return the offset.

        A read of its state machine is then linearizable: it is no older than any append or barrier that had returned
        before, on any replica. This works on every replica, the leader included, and costs a round trip of the
        leader to a majority, which all concurrent callers share (Raft thesis, 6.4).

        Raises, and then nothing was confirmed: TimedOutError; UnsupportedError, if the leader is not of kraftlib;
        ClosedError, ReplicaFailedError.
        """
        check_whole_timeout(timeout_ms, least=1)
        engine = self._running()
        promise = engine.ask(lambda promise: engine.node.read_barrier(promise, timeout_ms))
        return cast(Offset, await self._within(timeout_ms, "a leader to confirm itself and its log to arrive", promise))

    async def _within(self, timeout_ms: int | None, what: str, promise: asyncio.Future[Any]) -> Any:
        if timeout_ms is None:
            return await promise
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await promise
        except TimeoutError:
            raise TimedOutError(f"replica {self.node_id} waited {timeout_ms} ms for {what} in vain") from None

    # --- leading -----------------------------------------------------------------------------------------------------

    def resign(self, epoch: Epoch) -> None:
        """Resign the leadership of `epoch`; do nothing if it is over already.

        Raises: ConfigError for an epoch that is not known yet; NotLeaderError, if another replica leads it.
        """
        arguments.check_number("epoch", epoch)
        engine = self._running()
        engine.check_caller()
        known = self.leader_and_epoch()
        if not 0 <= epoch <= known.epoch:
            raise ConfigError(f"epoch={epoch} cannot be resigned: the newest that is known is {known.epoch}")
        if epoch == known.epoch and known.leader_id != self.node_id:
            raise NotLeaderError(f"replica {self.node_id} does not lead epoch {epoch} and cannot resign", leader=known)
        engine.call(lambda: engine.node.resign(epoch))

    async def transfer_leadership(self, target_id: ReplicaId, *, timeout_ms: int = 5_000) -> LeaderAndEpoch:
        """Transfer leadership to the voter `target_id`, once it has the whole log; return the new leader.

        Appends are accepted meanwhile, and written only if the transfer is given up. Records that were appended and
        are not committed when leadership ends have an unknown outcome, as always.

        Raises: NotLeaderError, if this replica does not lead; ConfigError, if the target is not another voter;
        TimedOutError, if no other voter became leader in time; then this replica keeps leading if it can.
        """
        arguments.check_number("target_id", target_id)
        check_whole_timeout(timeout_ms, least=1)
        engine = self._running()
        known = self.leader_and_epoch()
        if known.leader_id != self.node_id:
            raise NotLeaderError(f"replica {self.node_id} does not lead, and has nothing to hand over", leader=known)
        voters = engine.call(lambda: engine.node.core.voters.ids)
        if target_id == self.node_id or target_id not in voters:
            raise ConfigError(f"target_id={target_id} must be another one of the voters {', '.join(map(str, voters))}")
        promise = engine.ask(
            lambda promise: engine.node.transfer_leadership(promise, known.epoch, target_id, timeout_ms)
        )
        return cast(LeaderAndEpoch, await self._within(timeout_ms, f"voter {target_id} to lead", promise))

    async def add_voter(
        self, key: ReplicaKey, endpoint: Endpoint | Mapping[str, Endpoint], *, timeout_ms: int = 30_000
    ) -> None:
        """Make the observer `key`, which is reached at `endpoint`, a voter; return when that is committed (KIP-853).

        The observer must be running and caught up; while it lags, the request is repeated until the time is up. The
        call works on any replica. `endpoint` is that of our listener, or several by listener name.

        Raises: ConfigError, if it is a voter already or cannot be one; UnsupportedError in a static quorum
        (kraft.version 0); TimedOutError, and then nothing was changed; OutcomeUnknownError, if a leader may have
        written the change and its result is unknown: the leader failed, lost leadership or took too long, or this
        client closed. Then look at `status().voters` of the leader. After ReplicaFailedError it is unknown, too.
        """
        places = endpoint if isinstance(endpoint, Mapping) else {self._config.listener_name: endpoint}
        arguments.check_key(key)
        arguments.check_endpoints(places)
        await self._change_voters(
            lambda cluster_id: addition(key, places, cluster_id=cluster_id, timeout_ms=timeout_ms), timeout_ms
        )

    async def remove_voter(self, key: ReplicaKey, *, timeout_ms: int = 30_000) -> None:
        """Make the voter `key` an observer; return when that is committed (KIP-853). It may be this very replica.

        Raises: as `add_voter`; ConfigError, if it is no voter, or the last one.
        """
        arguments.check_key(key)
        await self._change_voters(lambda cluster_id: removal(key, cluster_id=cluster_id), timeout_ms)

    async def upgrade_kraft_version(self, version: int = 1, *, timeout_ms: int = 30_000) -> None:
        """Make a static quorum a dynamic one, whose voters are recorded in the log; there is no way back (KIP-853).

        Raises: UnsupportedError, if a voter does not support the version, or has not told it yet; else as `add_voter`.
        """
        arguments.check_number("version", version)
        await self._change_voters(lambda cluster_id: upgrade(version, timeout_ms=timeout_ms), timeout_ms)

    async def _change_voters(self, change: Callable[[str | None], VoterChangeRequest], timeout_ms: int) -> None:
        check_whole_timeout(timeout_ms, least=1)
        engine = self._running()
        node = engine.node
        request = change(node.core.state.cluster_id)
        await engine.ask(lambda promise: node.change_voters(promise, request, timeout_ms))

    async def create_snapshot(
        self, values: Iterable[T] | None = None, *, offset: Offset | None = None
    ) -> OffsetAndEpoch:
        """Write a snapshot that replaces every record below `offset`; return its id, once it is durable.

        Without arguments it is a snapshot of the state machine at this moment. With `values` it is a snapshot of a
        listener's state after every batch below `offset`; the values are read one by one on another thread. Snapshots
        of the state machine are also taken automatically: see `RaftConfig.snapshot_interval_bytes`.

        Raises: ConfigError, StorageError.
        """
        arguments.check_optional(offset=offset)
        engine = self._running()
        data = None if values is None else (self._to_bytes(value) for value in values)
        return cast(
            OffsetAndEpoch, await engine.ask(lambda promise: engine.node.create_snapshot(promise, data, offset))
        )

    def begin_snapshot(self, *, offset: Offset | None = None) -> OpenSnapshot:
        """Open a snapshot for writing that replaces every record below `offset`, by default the applied offset.

        It takes any number of values, a batch of them in memory at a time, from a thread of your own; with
        engine="inline" it is opened on the loop of the replica. Raises: ConfigError, if `offset` is not the committed
        end of a batch that the log still holds; StorageError.
        """
        arguments.check_optional(offset=offset)
        engine = self._running()
        engine.check_caller()
        return engine.call(lambda: engine.node.begin_snapshot(offset, self._to_bytes))

    def hold_log(self, name: str, *, offset: Offset | None = None, max_bytes: int | None = None) -> RetentionHold:
        """Keep the log from `offset` on for the reader `name`, until it advances or releases, or beyond `max_bytes`.

        A hold outlives restarts of this replica: the same name returns the same hold, advanced to `offset` if that is
        given. Without `offset` a new one begins at the start of the log. `max_bytes` is by default
        `config.hold_max_bytes`. Only snapshots of this replica wait for it; a download that replaces its log does not.

        Raises: ConfigError, if `offset` is gone already.
        """
        arguments.check_optional(offset=offset, max_bytes=max_bytes)
        engine = self._running()
        engine.check_caller()
        return engine.call(lambda: engine.node.hold_log(name, offset, max_bytes))

    # --- what is known -----------------------------------------------------------------------------------------------

    @property
    def node_id(self) -> ReplicaId:
        """Number of this replica."""
        return self._config.node_id

    @property
    def key(self) -> ReplicaKey:
        """Its id and the id of its directory, by which a voter set of kraft.version 1 names it."""
        return self._engine.node.core.key

    @property
    def config(self) -> RaftConfig:
        """The configuration that it was made with."""
        return self._config

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens."""
        return self._engine.node.endpoint

    def leader_and_epoch(self) -> LeaderAndEpoch:
        """Return the leader and epoch as known here."""
        return self._engine.node.executor.leader

    def high_watermark(self) -> Offset | None:
        """Return one past the last record known to be committed; None, while nothing is known."""
        return self._engine.node.core.high_watermark

    def log_end_offset(self) -> Offset:
        """Return one past the last record in the log of this replica, committed or not."""
        return self._engine.node.log_end_offset

    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Return the id of the newest snapshot of this replica."""
        return self._engine.call(self._engine.node.latest_snapshot_id)

    def kraft_version(self) -> int:
        """Return the finalized kraft.version: 0 for a static quorum, 1 for a dynamic one."""
        return self._engine.node.core.kraft_version

    def status(self) -> Status:
        """Return the state of this replica and its quorum, as it knows them; also after it was closed."""
        return self._engine.call(self._engine.node.status)

    def metrics(self) -> dict[str, float | str]:
        """Return Kafka's `raft-metrics` by name; also after it was closed."""
        return self._engine.call(self._engine.node.metrics_by_name)
