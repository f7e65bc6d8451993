"""One replica on one event loop of this process: its parts with real threads and a transport, started and stopped.

All methods are for the loop that `start` ran on; `kraftlib.runtime.client.engine` brings callers there.
`kraftlib.runtime.assembly` and `kraftlib.runtime.router` have the parts and their connections.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from typing import Any

from kraftlib.config import RaftConfig
from kraftlib.consensus import events as ev
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import ClosedError, KraftError, ReplicaFailedError
from kraftlib.proposals.forwarding import Proposals
from kraftlib.proposals.taking import ProposalServer
from kraftlib.records.serde import JsonSerde, RecordSerde
from kraftlib.runtime.assembly import Application, Assembly, Owner, Surroundings
from kraftlib.runtime.background import BackgroundThread
from kraftlib.runtime.client.callers import Callers
from kraftlib.runtime.client.proposing import EngineFirst, NodeReplica
from kraftlib.runtime.client.release import Release
from kraftlib.runtime.client.service import Service
from kraftlib.runtime.client.status import Status, replica_metrics, replica_status
from kraftlib.runtime.client.voter_changes import VoterChangeRequest, ask_leader, change_voters
from kraftlib.runtime.disk import Disk, InlineDisk, ThreadDisk
from kraftlib.runtime.listener import Listener, StateMachine
from kraftlib.runtime.loop import AsyncioLoop
from kraftlib.runtime.net.controller_apis import Controllers
from kraftlib.runtime.net.judge import Authorize
from kraftlib.runtime.net.network import Network
from kraftlib.runtime.net.transport import Transport
from kraftlib.runtime.opening import Opened
from kraftlib.runtime.router import Router
from kraftlib.runtime.snapshots.holds import RetentionHold
from kraftlib.runtime.snapshots.writing import OpenSnapshot
from kraftlib.runtime.waiters import Appended, Post, Promise, again
from kraftlib.security.audit import AuditLog
from kraftlib.security.audited import subject_of
from kraftlib.types import Endpoint, Epoch, LeaderAndEpoch, Offset, OffsetAndEpoch, ReplicaId
from kraftlib.wire.apis import PrivateApiKey

logger = logging.getLogger("kraftlib.runtime")


class Node:
    """A replica at work. `post` has the promises of callers settled, on their own loop."""

    def __init__(
        self,
        config: RaftConfig,
        opened: Opened,
        transport: Transport,
        *,
        serde: RecordSerde[Any],
        state_machine: StateMachine | None,
        listeners: Iterable[Listener],
        random: random.Random,
        post: Post,
        on_failure: Callable[[ReplicaFailedError], None],
        on_closed: Callable[[], None] = lambda: None,
        authorize: Authorize | None = None,
        result_serde: RecordSerde[Any] | None = None,
        service: Service | None = None,
    ) -> None:
        self._config = config
        self._opened = opened
        self._transport = transport
        self._serde = serde
        self._result_serde = result_serde or JsonSerde()
        self._service = service
        self._beside = ExitStack()
        """Ends what the application has beside its state machine."""
        self._random = random
        self._post = self.engine_first = EngineFirst(post)
        self._on_failure = on_failure
        self._on_closed = on_closed
        self._authorize = authorize
        self.state_machine = state_machine
        self._first_listeners = list(listeners)
        self._voters_told: VoterSet | None = None
        self.callers = Callers(self._post)
        self._gone = 0
        """Number of waiting callers that may have gone since they were looked at last."""
        self._closing: asyncio.Future[None] | None = None
        self._network_closing: asyncio.Future[None] | None = None
        self._handed_over: asyncio.Event | None = None
        self.endpoint: Endpoint = config.listen
        self.router = Router()

    # --- beginning ---------------------------------------------------------------------------------------------------

    async def start(self, ready: Callable[[Node], None] = lambda node: None) -> None:
        """Listen, and let the replica begin. `ready` is called when all is there, before the first listener is.

        Raises, and then nothing is left open: ConfigError, if the address cannot be listened on.
        """
        async with AsyncExitStack() as undo:
            undo.callback(self._not_started)
            undo.callback(self._opened.close)
            await self._listen(undo)
            self._assemble(undo)
            ready(self)
            self._look_at_voters()
            self._assembly.start()
            if self.executor.failure is not None:
                raise again(self.executor.failure)
            undo.pop_all()

    def _not_started(self) -> None:
        self._closing = asyncio.get_running_loop().create_future()
        self._closing.set_result(None)

    async def _listen(self, undo: AsyncExitStack) -> None:
        config, opened = self._config, self._opened
        audit = self._audit = AuditLog(
            node_id=config.node_id,
            cluster_id=opened.cluster_id,
            path=None if config.access is None else config.access.audit_file,
        )
        audit.check()
        for skip in opened.skips:
            audit.of_application("skipped", request="skip-record", subject=f"offset {skip.offset}", outcome=skip.reason)
        controllers = self._controllers = Controllers(config, submit=self.router.submit)
        self.network = Network(
            self._transport,
            client_id=f"raft-client-{config.node_id}",
            receiver=self.router,
            config=config,
            cluster_id=opened.cluster_id,
            authorize=self._authorize,
            is_voter=self._is_voter,
            audit=audit,
            features=lambda: {"kraft.version": self.core.kraft_version},
            served=controllers.served,
            identified=controllers.identified,
        )
        self.router.connect_network(self.network)
        self.endpoint = await self.network.start()
        undo.push_async_callback(self.network.close)

    def _assemble(self, undo: AsyncExitStack) -> None:
        loop = self._loop = asyncio.get_running_loop()
        config, opened = self._config, self._opened
        self._handed_over = asyncio.Event()
        self.background = BackgroundThread(loop, name=f"kraftlib-background-{config.node_id}")
        undo.callback(self.background.close)
        name = f"kraftlib-disk-{config.node_id}"
        self.disk: Disk = InlineDisk() if config.flush == "inline" else ThreadDisk(loop, name=name)
        undo.callback(self.disk.close)
        parts = self._assembly = Assembly(
            config,
            opened,
            Surroundings(
                loop=AsyncioLoop(loop),
                disk=self.disk,
                background=self.background,
                router=self.router,
                random=self._random,
            ),
            Application(
                serde=self._serde,
                state_machine=self.state_machine,
                listeners=self._first_listeners,
                post=self._post,
            ),
            Owner(
                failed=self._failed,
                machine_failed=self._on_failure,
                leader_known=self._leader_known,
                shutdown_complete=self._handed_over.set,
                timer_fired=self._look_at_voters,
            ),
            endpoints={config.listener_name: config.advertised or self.endpoint},
        )
        self.core, self.executor, self.applier = parts.core, parts.executor, parts.applier
        self.waiters, self.appends, self.metrics = parts.waiters, parts.appends, parts.metrics
        self.housekeeping = parts.housekeeping
        self._serve_proposals()
        self._begin_beside(undo)
        logger.info("replica %d of cluster %s listens on %s", config.node_id, opened.cluster_id, self.endpoint)

    def _serve_proposals(self) -> None:
        replica = NodeReplica(self)
        self.proposals = Proposals(replica, serde=self._result_serde)
        server = ProposalServer(
            replica,
            respond=self.router.respond,
            serde=self._result_serde,
            has_machine=self.state_machine is not None,
            timeout_max_ms=self._config.request_timeout_ms,
        )
        self.router.serve(PrivateApiKey.PROPOSE, server.take)

    def _begin_beside(self, undo: AsyncExitStack) -> None:
        """Let begin what the application has beside its state machine."""
        undo.callback(self._beside.close)
        companion = None if self.state_machine is None else self.state_machine.companion
        if companion is not None:
            companion.begin(self)
            self._beside.callback(companion.end)
        if self._service is not None:
            self._service.begin(self)
            self._beside.callback(self._service.end)
            self._controllers.serve(self._service.served)

    def _is_voter(self, replica_id: ReplicaId) -> bool:
        # A request may come before the core is there.
        return hasattr(self, "core") and self.core.voters.get(replica_id) is not None

    def _look_at_voters(self) -> None:
        voters = self.core.voters
        if voters is not self._voters_told:
            self._voters_told = voters
            self.network.voters_at(
                [endpoint.host for voter in voters.others(self.core.key) for endpoint in voter.endpoints.values()]
            )
        self._controllers.meet_voters(self.core, self.network.meet)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def wait_for_leader(self, promise: Promise, *, after_epoch: Epoch = -1) -> None:
        """Settle `promise` with the leader and its epoch, as soon as there is one of an epoch after this."""
        self.ensure_running()
        # Announced: one that was elected a moment ago may still be writing its vote.
        self.callers.wait_for_leader(promise, self.executor.leader, after_epoch=after_epoch)

    def wait_for_offset(self, offset: Offset, promise: Promise) -> None:
        """Settle `promise` once the record at `offset` was applied here."""
        self.ensure_applying()
        self.applier.wait_for(offset, promise)

    def read_barrier(self, promise: Promise, timeout_ms: int) -> None:
        """Settle `promise` with the applied offset, once it covers everything that is committed now."""
        self.ensure_applying()
        self.executor.read_barrier(promise, timeout_ms)

    def _leader_known(self, leader: LeaderAndEpoch) -> None:
        self.proposals.leader_known()
        self.callers.leader_known(leader)

    @property
    def is_running(self) -> bool:
        """Whether it neither has failed nor closes."""
        return self.executor.failure is None and self._closing is None

    def ensure_running(self) -> None:
        """Raises: ReplicaFailedError, ClosedError."""
        if self.executor.failure is not None:
            raise again(self.executor.failure)
        if self._closing is not None:
            raise ClosedError(f"replica {self._config.node_id} is closed")

    def ensure_applying(self) -> None:
        """Raises: ReplicaFailedError, also where only the state machine has failed; ClosedError."""
        self.ensure_running()
        if self.waiters.apply_failure is not None:
            raise again(self.waiters.apply_failure)

    # --- what is known -----------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """Return a picture of this moment."""
        return replica_status(
            self.core,
            endpoint=self.endpoint,
            applied_offset=self.applier.applied_offset,
            waiting=len(self.waiters),
            failure=self.executor.failure or self.applier.machine_failure,
            now_ms=self._assembly.now_ms(),
        )

    def metrics_by_name(self) -> dict[str, float | str]:
        """Return Kafka's `raft-metrics`."""
        return replica_metrics(
            self.core,
            self.metrics,
            applied_offset=self.applier.applied_offset,
            scrubs=self.housekeeping.scrubber.counts,
            machine_failed=self.applier.machine_failure is not None,
            tls_metrics=getattr(self._transport, "tls_metrics", {}),
        )

    @property
    def log_end_offset(self) -> Offset:
        """One past the last record in the log."""
        return self._opened.log.end_offset

    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Return the id of the newest snapshot."""
        return next(iter(reversed(self._opened.log.snapshots())), None)

    def resign(self, epoch: int) -> None:
        """Give up the leadership of `epoch`, soon."""
        self._audit.of_application("requested", request="resign", subject=f"epoch {epoch}")
        self.executor.submit(ev.ResignRequested(epoch))

    def transfer_leadership(self, promise: Promise, epoch: Epoch, target_id: ReplicaId, timeout_ms: int) -> None:
        """Transfer the leadership of `epoch` to a voter; settle `promise` with the next leader."""
        subject = f"epoch {epoch}, to voter {target_id}"
        self._audit.of_application("requested", request="transfer_leadership", subject=subject)
        self.wait_for_leader(promise, after_epoch=epoch)
        self.executor.submit(ev.TransferRequested(epoch, target_id, timeout_ms))

    def change_voters(self, promise: Promise, change: VoterChangeRequest, timeout_ms: int) -> None:
        """Settle `promise` when the leader has made the change, or with its error."""
        self.ensure_running()
        name, subject = type(change.message).__name__, subject_of(change.message)
        self._audit.of_application("requested", request=name, subject=subject)

        def done(error: BaseException | None) -> None:
            outcome = "NONE" if error is None else f"{type(error).__name__}: {error}"
            self._audit.of_application("finished", request=name, subject=subject, outcome=outcome)

        ask = partial(ask_leader, self.core, self.router.own)
        self.callers.run(promise, change_voters(change, ask=ask, timeout_ms=timeout_ms), done)

    def forward(self, promise: Promise, values: Sequence[bytes], level: int, timeout_ms: int) -> None:
        """Settle `promise` with the `Appended` of `values`, which the leader appends, whichever replica that is."""
        self.ensure_running()

        async def append() -> Appended:
            return Appended(*await self.proposals.propose(values, level=level, timeout_ms=timeout_ms))

        self.callers.run(promise, append())

    def withdraw(self, promise: Promise) -> None:
        """A waiting caller has gone. Forget all that have, once there may be as many of them as of the others."""
        callers, barriers = self.callers, self.executor.barriers
        callers.cancel_work_for(promise)
        self._gone += 1
        if 2 * self._gone > callers.leader_waiters + len(self.applier.offset_waiters) + len(barriers):
            self._gone = 0
            callers.forget_gone()
            self.applier.offset_waiters.forget_gone()
            barriers.forget_gone()

    def create_snapshot(self, promise: Promise, values: Iterable[bytes] | None, offset: Offset | None) -> None:
        """Settle `promise` with the id of a new snapshot, once it is durable (see `RaftClient.create_snapshot`)."""
        self.ensure_running()
        if values is None and self.waiters.apply_failure is not None:
            raise again(self.waiters.apply_failure)
        self.callers.wait_for_snapshot(promise, lambda done: self.housekeeping.create(done, values, offset))

    def begin_snapshot(self, offset: Offset | None, to_bytes: Callable[[Any], bytes]) -> OpenSnapshot:
        """Open a snapshot for writing elsewhere (see `RaftClient.begin_snapshot`)."""
        self.ensure_running()
        return self.housekeeping.begin(offset, to_bytes)

    def hold_log(self, name: str, offset: Offset | None, max_bytes: int | None) -> RetentionHold:
        """Keep the log from `offset` on for a reader (see `RaftClient.hold_log`)."""
        self.ensure_running()
        return self.housekeeping.retention.hold(name, offset, max_bytes)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def shutdown(self, timeout_ms: int) -> None:
        """Finish appends, transfer leadership, flush, close; after `timeout_ms` close anyhow. Calls share one end."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._shut_down(timeout_ms))
        # A caller may be cancelled while it waits; the end goes on.
        await asyncio.shield(self._closing)

    async def _shut_down(self, timeout_ms: int) -> None:
        deadline = self._loop.time() + timeout_ms / 1_000
        self.appends.begin_close()
        try:
            if self.executor.failure is None and timeout_ms > 0:
                self.applier.begin_shutdown()
                async with asyncio.timeout_at(deadline):
                    await self._finish_appends()
                left_ms = max(0, round((deadline - self._loop.time()) * 1_000))
                self.executor.submit(ev.ShutdownRequested(left_ms))
                async with asyncio.timeout_at(deadline):
                    await self._end_of_leadership()
        except TimeoutError:
            logger.warning(
                "replica %d: its appends, and the transfer of its leadership, did not end within %d ms; closing",
                self._config.node_id,
                timeout_ms,
            )
        finally:
            await self._close()

    async def _finish_appends(self) -> None:
        """Wait until everybody who waits was told."""
        told = self.engine_first.future()  # not of the callers' loop, which may have ended
        self.waiters.when_settled(told)
        self.applier.wake()
        with suppress(KraftError):  # the leadership was lost, or the state machine has failed
            await told

    async def _end_of_leadership(self) -> None:
        if self._handed_over is not None and self.executor.failure is None:
            await self._handed_over.wait()

    async def _close(self) -> None:
        try:
            self._beside.close()
        finally:
            await self._close_replica()

    async def _close_replica(self) -> None:
        self._assembly.stop()
        self._fail_other_waiters(lambda: ClosedError(f"replica {self._config.node_id} was closed"))
        try:
            await self.callers.finish_work()
            await (self._network_closing or self.network.close())
        finally:
            release = Release(self._config.node_id, background=self.background, disk=self.disk, opened=self._opened)
            try:
                await release.run(has_failed=lambda: self.executor.failure is not None)
            finally:
                self._on_closed()

    def fail(self, error: BaseException) -> None:
        """Stop the replica for good, because of `error`."""
        self._assembly.fail(error)

    def _failed(self, failure: ReplicaFailedError) -> None:
        """The replica has stopped itself: it answers no more requests, and every waiting caller gets an error."""
        self.background.cancel()
        self._fail_other_waiters(lambda: again(failure))
        if self._handed_over is not None:
            self._handed_over.set()
        self._network_closing = asyncio.ensure_future(self.network.close())
        self._on_failure(failure)

    def _fail_other_waiters(self, error_of: Callable[[], BaseException]) -> None:
        self.callers.fail(error_of)
        self.applier.offset_waiters.fail(error_of)
        self.executor.barriers.fail(error_of)
        self.router.own.close(error_of())
