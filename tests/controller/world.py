"""One controller, driven by hand: what it decides is encoded, appended, folded, and committed when the test says so."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from kraftlib.codec.declarations import Message
from kraftlib.controller import ControllerConfig, Decision, QuorumController
from kraftlib.controller.context import NOBODY, Caller
from kraftlib.controller.state import ClusterState
from kraftlib.controller.versions import METADATA_VERSION, encoded
from kraftlib.metadata import RegisterControllerRecord, decode_record
from kraftlib.metadata.topic_records import PartitionRecord
from kraftlib.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlib.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from kraftlib.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

LEVELS = {METADATA_VERSION: 30, "group.version": 1, "transaction.version": 2}
RANGES = {
    METADATA_VERSION: (7, 30),
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
WALL_MS = 1_700_000_000_000
FIRST_OFFSET = 3
"""A new log has three control records before the first decision."""


def directory(broker_id: int, number: int = 0) -> UUID:
    """A log directory of a broker."""
    return UUID(int=(broker_id << 64) + (number << 32) + 1_000)


class World:
    """A controller and its log. It is active from the beginning."""

    def __init__(self, *, levels: dict[str, int] | None = None, seed: int = 1, **config: Any) -> None:
        chance = random.Random(seed)
        self.controller = QuorumController(
            cluster_id="blue",
            config=ControllerConfig(**config),
            levels=levels or LEVELS,
            me=RegisterControllerRecord(controller_id=1, incarnation_id=UUID(int=7)),
            random=chance,
            new_uuid=lambda: UUID(int=chance.getrandbits(128)),
            wall_ms=lambda: WALL_MS + self.now_ms,
        )
        self.log: list[Message] = []
        self.committed = 0
        self.now_ms = 1_000
        self.incarnations = 0
        self.activate()

    @property
    def state(self) -> ClusterState:
        return self.controller.state

    @property
    def next_offset(self) -> int:
        return FIRST_OFFSET + len(self.log)

    def activate(self) -> None:
        self.carry_out(self.controller.activate(now_ms=self.now_ms, next_offset=self.next_offset))

    def lose_the_epoch(self) -> None:
        """What is not committed is cut from the log."""
        self.controller.deactivate()
        del self.log[self.committed :]

    def carry_out(self, decision: Decision, *, commit: bool = True) -> list[Message]:
        if not decision.records:
            return []
        level = self.state.features.metadata_version or LEVELS[METADATA_VERSION]
        # Only what the frame can hold reaches the state of another controller.
        records = [decode_record(encoded(record, level))[0] for record in decision.records]
        base_offset = self.next_offset
        self.log += records
        self.controller.appended(records, base_offset, self.now_ms)
        if commit:
            self.commit()
        return records

    def commit(self) -> None:
        for number in range(self.committed, len(self.log)):
            self.controller.applied(self.log[number], FIRST_OFFSET + number)
        self.committed = len(self.log)

    def ask(self, request: Any, *, version: int | None = None, commit: bool = True, caller: Caller = NOBODY) -> Any:
        """Return the answer; the records are the newest ones of the log."""
        version = request.valid_versions.last if version is None else version
        decision = self.controller.handle(
            request, version, now_ms=self.now_ms, next_offset=self.next_offset, caller=caller
        )
        self.carry_out(decision, commit=commit)
        return decision.answer

    def tick(self) -> list[Message]:
        return self.carry_out(self.controller.tick(now_ms=self.now_ms, next_offset=self.next_offset))

    # --- brokers and topics ------------------------------------------------------------------------------------------

    def registration(self, broker_id: int, **changes: Any) -> BrokerRegistrationRequest:
        self.incarnations += 1
        row = BrokerRegistrationRequest.Feature
        fields: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": "blue",
            "incarnation_id": UUID(int=self.incarnations),
            "features": tuple(
                row(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in RANGES.items()
            ),
            "log_dirs": (directory(broker_id),),
        }
        return BrokerRegistrationRequest(**{**fields, **changes})

    def register(self, broker_id: int, **changes: Any) -> BrokerRegistrationResponse:
        answer = self.ask(self.registration(broker_id, **changes))
        assert isinstance(answer, BrokerRegistrationResponse)
        return answer

    def beat(self, broker_id: int, *, commit: bool = True, **changes: Any) -> BrokerHeartbeatResponse:
        """Send a heartbeat of a broker that has read everything, and wants to serve."""
        broker = self.state.cluster.brokers.get(broker_id)
        fields: dict[str, Any] = {
            "broker_id": broker_id,
            "broker_epoch": -1 if broker is None else broker.broker_epoch,
            "current_metadata_offset": self.next_offset,
        }
        answer = self.ask(BrokerHeartbeatRequest(**{**fields, **changes}), commit=commit)
        assert isinstance(answer, BrokerHeartbeatResponse)
        return answer

    def with_brokers(self, *broker_ids: int, **changes: Any) -> World:
        """Register these and let them serve."""
        for broker_id in broker_ids:
            assert self.register(broker_id, **changes).error_code == 0
            assert self.beat(broker_id).is_fenced is False
        return self

    def create(
        self, name: str, *, partitions: int = -1, factor: int = -1, version: int = 7, **how: Any
    ) -> CreateTopicsResponse.CreatableTopicResult:
        """Create one topic; `configs` are pairs, `assignments` lists of brokers, `commit` as in `ask`."""
        commit, validate_only = how.pop("commit", True), how.pop("validate_only", False)
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=tuple(
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in how.pop("configs", {}).items()
            ),
            assignments=tuple(
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(brokers))
                for number, brokers in enumerate(how.pop("assignments", ()))
            ),
        )
        request = CreateTopicsRequest(topics=(topic,), validate_only=validate_only)
        answer = self.ask(request, version=version, commit=commit)
        assert isinstance(answer, CreateTopicsResponse)
        return answer.topics[0]

    def partition(self, name: str, number: int = 0) -> PartitionRecord:
        topic = self.state.topics.named(name)
        assert topic is not None
        return self.state.topics.partitions[topic.topic_id, number]

    def shape(self, name: str, number: int = 0) -> tuple[int, tuple[int, ...], int, int]:
        """Leader, ISR, leader epoch and partition epoch."""
        one = self.partition(name, number)
        return one.leader, one.isr, one.leader_epoch, one.partition_epoch


def picture(state: ClusterState) -> list[str]:
    """Everything that the committed state holds, as text that can be compared; its order is not compared."""
    return sorted(repr(record) for record in state.freeze())


def refolded(world: World) -> ClusterState:
    """The state that the log alone builds."""
    state = ClusterState()
    for record in world.log[: world.committed]:
        state.replay(record)
    return state
