"""`MetadataController`: the controller on a replica, serving Kafka's brokers on the replica's own port.

    async with MetadataController(config) as controller:
        await controller.wait_closed()

Everything happens on the event loop of the caller, which the replica shares: a decision, its records in the log and its
effect on the state are one step. Answers wait until everything that they rest on is committed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import Versions
from kraftlib.config import RaftConfig
from kraftlib.controller.access_rules import host_text
from kraftlib.controller.announcement import Announcement
from kraftlib.controller.apis import FORWARDABLE, JUDGED, ROLES, VERSIONS
from kraftlib.controller.bootstrap import read_levels
from kraftlib.controller.context import ANONYMOUS, Caller, ControllerConfig
from kraftlib.controller.features import SUPPORTED
from kraftlib.controller.quorum_controller import QuorumController
from kraftlib.controller.results import RECORDS_MAX, Decision
from kraftlib.controller.state import ClusterState
from kraftlib.controller.update_features import is_about_kraft_version, split, with_kraft_version
from kraftlib.controller.versions import METADATA_VERSION, encoded
from kraftlib.errors import BacklogFullError, ClosedError, ConfigError, KraftError, NotLeaderError, RecordTooLargeError
from kraftlib.metadata.broker_records import RegisterControllerRecord
from kraftlib.metadata.config_records import FeatureLevelRecord
from kraftlib.metadata.frame import decode_record
from kraftlib.runtime.client.node import Node
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.net.request_handler import Answer
from kraftlib.runtime.net.transport import Peer
from kraftlib.security.access import Role
from kraftlib.security.sasl import USER_PREFIX
from kraftlib.storage.meta_properties import read_meta_properties
from kraftlib.types import LeaderAndEpoch, Offset, new_uuid
from kraftlib.wire.apis import ErrorCode, error_answer
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest

logger = logging.getLogger(__name__)

TICK_S: Final = 0.1
ELEMENTS_MAX: Final = 200_000
"""Array elements of one request of a broker or admin client: an ISR change of 20,000 partitions fits."""

KNOWN_TO_KAFKA: Final = ("cert:", USER_PREFIX)
PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = range(4)


class ControllerSerde:
    """Metadata records, encoded by the controller itself: their version depends on metadata.version.

    The active controller has its records already when they are committed: they are not decoded again.
    """

    def __init__(self) -> None:
        self._own: dict[bytes, Message] = {}

    def remember(self, values: Iterable[bytes], records: Iterable[Message]) -> None:
        """Remember records of ours that were appended as these values."""
        self._own.update(zip(values, records, strict=True))

    def forget(self) -> None:
        """Forget the records on the way: they may never be committed."""
        self._own.clear()

    def to_bytes(self, value: bytes) -> bytes:
        """Return it: it is encoded already."""
        return value

    def from_bytes(self, data: bytes) -> Message:
        """Return the record. Raises: RemoteProtocolError, also for a record of a newer Kafka."""
        own = self._own.pop(data, None)
        return decode_record(data)[0] if own is None else own


@attrs.frozen
class _Waiting:
    """An answer that is sent when everything below `end_offset` is committed."""

    end_offset: Offset
    response: Message
    answer: Answer
    refuse: Callable[[ErrorCode], Message]


class MetadataController(StateMachine):
    """A replica with a metadata controller inside, on which Kafka's brokers run.

    `config` is that of the replica, `controller` that of the controller. Kafka's quorums know no `yield_to`: here, too,
    the elected controller leads. The engine is always "inline", and `private_apis` is off: only the active controller
    appends to its log.
    """

    served: Mapping[int, Versions] = VERSIONS
    roles: Mapping[int, Role] = ROLES
    judged: frozenset[int] = frozenset()
    forwardable: frozenset[int] = FORWARDABLE
    supported_features: Mapping[str, Versions] = SUPPORTED
    elements_max: int = ELEMENTS_MAX

    def __init__(self, config: RaftConfig, controller: ControllerConfig | None = None) -> None:
        if config.directory is None:
            raise ConfigError("directory is not set: a controller keeps its log there")
        self._config = attrs.evolve(config, engine="inline", yield_to=(), private_apis=False)
        self._options = controller or ControllerConfig()
        if self._options.standard_authorizer:
            self.judged = JUDGED
            self.roles = {**ROLES, **dict.fromkeys(JUDGED, Role.CLIENT)}
        self._waiting: deque[_Waiting] = deque()
        self._epoch: int | None = None
        self._due_epoch: int | None = None  # in which it could not begin, since the disk was full
        self._own_end: Offset = 0
        """One past the last record that was appended in this epoch."""
        self._released_end: Offset = 0
        """One past the last of them that may be written: those behind it wait for its commit, and go as one batch."""
        self._is_releasing = False
        self._applied_end: Offset = 0
        self._became_ready = asyncio.Event()
        self._ticker: asyncio.TimerHandle | None = None
        self._controller: QuorumController | None = None
        self._announcement: Announcement | None = None
        self._node: Node | None = None
        self._serde = ControllerSerde()
        self.client: RaftClient[Any] = RaftClient(self._config, state_machine=self, serde=self._serde, service=self)

    # --- beginning and end -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the replica. Raises: ConfigError, NotFormattedError and what else `RaftClient.start` raises."""
        directory = Path(self._config.directory or "")
        meta = read_meta_properties(directory)
        if meta is not None and self._controller is None:  # else the replica says what is wrong
            me = self._registration()
            self._announcement = Announcement(me)
            self._controller = QuorumController(
                cluster_id=meta.cluster_id,
                config=self._options,
                levels=read_levels(directory),
                me=me,
                random=random.Random(),
                new_uuid=new_uuid,
                wall_ms=lambda: time.time_ns() // 1_000_000,
            )
        await self.client.start()
        self._tick()

    def _registration(self) -> RegisterControllerRecord:
        config = self._config
        place = config.advertised or config.listen
        protocol = (
            (SSL if config.tls else PLAINTEXT) if config.sasl is None else SASL_SSL if config.tls else SASL_PLAINTEXT
        )
        return RegisterControllerRecord(
            controller_id=config.node_id,
            incarnation_id=new_uuid(),
            end_points=(
                RegisterControllerRecord.ControllerEndpoint(
                    name=config.listener_name, host=place.host, port=place.port, security_protocol=protocol
                ),
            ),
            features=tuple(
                RegisterControllerRecord.ControllerFeature(
                    name=name, min_supported_version=range_.first, max_supported_version=range_.last
                )
                for name, range_ in sorted({**SUPPORTED, "kraft.version": Versions(0, 1)}.items())
            ),
        )

    async def close(self) -> None:
        """Hand over, flush, close."""
        if self._ticker is not None:
            self._ticker.cancel()
        await self.client.close()
        self._waiting.clear()  # their connections are closed
        self._renounce()

    async def wait_closed(self) -> None:
        """Wait until it was closed. Raises: ReplicaFailedError, if the replica or the controller stops itself."""
        await self.client.wait_closed()

    async def __aenter__(self) -> MetadataController:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def wait_until_active(self, *, timeout_ms: int | None = None) -> None:
        """Wait until this is the active controller and its first records are committed.

        Raises: TimeoutError; ClosedError, if it is closed before; ReplicaFailedError, as `wait_closed`.
        """
        ended = asyncio.ensure_future(self.wait_closed())
        ended.add_done_callback(lambda _: self._became_ready.set())
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1_000):
                while not self._is_ready:
                    if ended.done():
                        await ended
                        raise ClosedError("the controller was closed before it was active")
                    self._became_ready.clear()
                    await self._became_ready.wait()
        finally:
            ended.cancel()

    @property
    def _is_ready(self) -> bool:
        return self.is_active and 0 < self._own_end <= self._applied_end

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller."""
        return self._controller is not None and self._controller.is_active

    @property
    def state(self) -> ClusterState:
        """The state of the cluster as it is known here; on the active controller with uncommitted changes."""
        return self._pure.state

    @property
    def _pure(self) -> QuorumController:
        if self._controller is None:
            raise ClosedError("the controller is not started")
        return self._controller

    # --- the replica's requests: Service and RequestHandler ----------------------------------------------------------

    def begin(self, node: Node) -> None:
        """Take the requests of brokers and admin clients, with their roles, features and envelopes."""
        self._node = node
        node.network.serve(self)

    def end(self) -> None:
        """Do nothing: waiting requests are answered or refused as leadership ends."""

    def finalized_features(self) -> Mapping[str, int]:
        """Return the levels in force."""
        return {} if self._controller is None else dict(self._controller.state.features.levels.items())

    def handle_request(self, request: Message, version: int, peer: Peer, answer: Answer) -> None:
        """Decide on a request, and answer it when the decision is committed."""
        if isinstance(request, UpdateFeaturesRequest) and is_about_kraft_version(request) and self.is_active:
            self._ask_the_replica(request, version, peer, answer)
        else:
            self._decide(request, version, peer, answer)

    def _decide(self, request: Message, version: int, peer: Peer, answer: Answer) -> None:
        refuse = partial(error_answer, request, version=version)
        try:
            decide = partial(self._pure.handle, request, version, caller=self._caller(peer))
            decision = decide(now_ms=self._now_ms(), next_offset=self._next_offset())
            self._carry_out(decision)
        except (NotLeaderError, BacklogFullError, RecordTooLargeError) as error:
            answer(refuse(_code_of(error)))
            return
        except Exception:
            logger.exception("controller %d could not decide on a %s", self._config.node_id, type(request).__name__)
            answer(refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        if decision.answer is not None:
            self._waiting.append(_Waiting(self._own_end, decision.answer, answer, refuse))
            self._answer()

    def _ask_the_replica(self, request: UpdateFeaturesRequest, version: int, peer: Peer, answer: Answer) -> None:
        """Have the replica, which leads, decide on kraft.version, which stands in its own records.

        As with voters, the sender needs the role admin, and so does the broker that forwards this; no rule of access
        counts.
        """
        if not all(one.is_admin for one in (peer, peer.forwarded_by) if one is not None):
            answer(error_answer(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            return
        own, others = split(request)
        if others is not None:
            try:
                trial: Any = self._pure.handle(
                    attrs.evolve(others, validate_only=True), version,
                    now_ms=self._now_ms(), next_offset=self._next_offset(), caller=self._caller(peer),
                ).answer  # fmt: skip
            except Exception:
                logger.exception("controller %d could not try an UpdateFeatures", self._config.node_id)
                trial = error_answer(others, ErrorCode.UNKNOWN_SERVER_ERROR)
            if trial.error_code:
                answer(trial)
                return

        def decided(response: Any) -> None:
            answer(response and with_kraft_version(response))

        def answered(asked: asyncio.Future[Any]) -> None:
            told = asked.result() if not asked.cancelled() and asked.exception() is None else None
            if others is None or told is None or told.error_code:
                answer(told)
            else:
                self._decide(others, version, peer, decided)

        if self._node is not None:
            self._node.router.own.ask_here(own).add_done_callback(answered)

    def _caller(self, peer: Peer) -> Caller:
        """Return the client: a user, or the subject of a certificate, as Kafka writes it; anonymous otherwise."""
        named = [name.replace("cert:", USER_PREFIX, 1) for name in peer.principals if name.startswith(KNOWN_TO_KAFKA)]
        users = [name for name in named if name in peer.principals]  # after SASL the user alone counts
        principal = next(iter((*users, *named)), ANONYMOUS)
        return Caller(
            principal=principal,
            may_have_tokens=not peer.by_token and (peer.forwarded_by is not None or principal != ANONYMOUS),
            is_admin=peer.is_admin,
            host=host_text(peer.address),
            is_forwarded=peer.forwarded_by is not None,
            client_id=peer.client_id,
        )

    def _carry_out(self, decision: Decision) -> None:
        """Append the records of a decision and fold them. Raises: as `RaftClient.prepare_append`."""
        records = decision.records
        if not records:
            return
        epoch = self._epoch
        if epoch is None:
            raise NotLeaderError("this controller is not active", leader=self.client.leader_and_epoch())
        level = self._pure.state.features.metadata_version or _level_within(records)
        step = len(records) if decision.is_atomic else RECORDS_MAX
        try:
            for begin in range(0, len(records), step):
                part = records[begin : begin + step]
                values = [encoded(record, level) for record in part]
                last = self.client.prepare_append(epoch, values)
                self._serde.remember(values, part)
                self._own_end = last + 1
                self._fold(part, last + 1 - len(part), epoch)
        except NotLeaderError:
            self._renounce()
            raise
        finally:
            self._release_soon()

    def _release_soon(self) -> None:
        """Have what was decided written: all decisions of a turn of the loop together, one batch at a time."""
        if self._released_end <= self._applied_end and not self._is_releasing:
            self._is_releasing = True
            asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        self._is_releasing = False
        if self._epoch is not None and self._released_end < self._own_end:
            self._released_end = self._own_end
            self.client.schedule_prepared_append()

    def _fold(self, records: Sequence[Message], base_offset: Offset, epoch: int) -> None:
        """Fold what was appended. If that fails, the log holds what this controller does not understand."""
        try:
            self._pure.appended(records, base_offset, self._now_ms())
        except Exception:
            self._renounce()
            self.client.resign(epoch)
            raise

    def _next_offset(self) -> Offset:
        return max(self._own_end, self.client.log_end_offset())

    def _answer(self) -> None:
        """Send the answers whose time has come. Those without records of their own wait for the records before them."""
        while self._waiting and self._waiting[0].end_offset <= self._applied_end:
            waiting = self._waiting.popleft()
            waiting.answer(waiting.response)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000)

    def _tick(self) -> None:
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        if self._due_epoch is not None:
            self._activate(self._due_epoch)
        if self._epoch is None:
            self._announce()
            return
        decision = self._pure.tick(now_ms=self._now_ms(), next_offset=self._next_offset())
        try:
            self._carry_out(decision)
            if not decision.records:
                self._release()  # a change of voters, behind it, may be what the commit of the records before needs
        except KraftError as error:
            logger.info("controller %d could not act: %s", self._config.node_id, error)
        else:
            if decision.records:  # there may be more to do, such as another silent broker
                self._ticker.cancel()
                self._ticker = asyncio.get_running_loop().call_later(0, self._tick)

    def _announce(self) -> None:
        """Register this standby with the active controller, until the log says that it is registered."""
        if self._node is None or self._announcement is None:
            return
        core = self._node.core
        leader_id, endpoint = core.leader_and_epoch.leader_id, core.state.leader_endpoint
        if leader_id is None or endpoint is None or leader_id == self._config.node_id:
            return
        request = self._announcement.due(self._pure.state, self._now_ms())
        if request is not None:
            asked = self._node.router.own.ask(leader_id, endpoint, request)
            asked.add_done_callback(lambda asked: asked.cancelled() or asked.exception())  # the log is the answer

    # --- the replica's log: StateMachine -----------------------------------------------------------------------------

    def apply(self, record: CommittedRecord) -> None:
        """Fold a committed record, and send the answers that waited for it."""
        self._pure.applied(record.value, record.offset)
        self._applied_end = record.offset + 1
        self._answer()
        if self._released_end < self._own_end:
            self._release_soon()
        if self._is_ready:
            self._became_ready.set()

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Become the active controller, or a standby."""
        if leader.leader_id == self._config.node_id:
            self._activate(leader.epoch)
        else:
            self._due_epoch = None
            if self._announcement is not None:
                self._announcement.begin()
            self._renounce()

    def _activate(self, epoch: int) -> None:
        if self._epoch is not None:
            self._renounce()
        self._epoch, self._due_epoch, self._own_end, self._released_end = epoch, None, 0, 0
        try:
            decision = self._pure.activate(now_ms=self._now_ms(), next_offset=self._next_offset())
            self._carry_out(decision)
        except (NotLeaderError, BacklogFullError) as error:
            self._renounce()
            self._due_epoch = epoch if isinstance(error, BacklogFullError) else None
        else:
            logger.info("controller %d is active in epoch %d", self._config.node_id, epoch)

    def _renounce(self) -> None:
        """Stop deciding. The records of unanswered requests may still be committed: brokers ask the next controller."""
        if self._epoch is None:
            return
        if self._own_end:  # else it could not even begin
            logger.info("controller %d is not active any more", self._config.node_id)
        self._epoch, self._own_end = None, 0  # no answer waits for records that may never be committed
        self._serde.forget()
        self._pure.deactivate()
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.answer(one.refuse(ErrorCode.NOT_CONTROLLER))

    def freeze(self) -> Iterable[bytes]:
        """Return the encoded records of a snapshot, in the versions of the metadata.version that is committed."""
        state = self._pure.state
        level = state.journal.before(state.features.levels).get(METADATA_VERSION, 0)
        return (encoded(record, level) for record in state.freeze())

    snapshot = freeze

    def restore(self, values: Iterable[Any]) -> None:
        """Begin anew with a snapshot."""
        state = ClusterState()
        for record in values:
            state.replay(record)
        self._pure.restored(state)


def _level_within(records: Sequence[Message]) -> int:
    """Return the metadata.version that these first records of a log set."""
    return next(
        record.feature_level
        for record in records
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION
    )


def _code_of(error: NotLeaderError | BacklogFullError | RecordTooLargeError) -> ErrorCode:
    """Return the code of Kafka for a request whose records the log did not take."""
    if isinstance(error, NotLeaderError):
        return ErrorCode.NOT_CONTROLLER
    return ErrorCode.RECORD_LIST_TOO_LARGE if isinstance(error, RecordTooLargeError) else ErrorCode.REQUEST_TIMED_OUT
