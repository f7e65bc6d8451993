"""The snapshots of a replica as others get them (KIP-630).

| id | rule |
|---|---|
| RF30 | a FetchSnapshot gets the bytes of a stored snapshot from its position on, or the error of its first mistake |
| RF31 | a replica with a snapshot answers with the hash of its first bytes, leader or not |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Leader
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import BOOTSTRAP_SNAPSHOT, METADATA_TOPIC, Endpoint, OffsetAndEpoch, ReplicaId
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest, SnapshotHashResponse
from tools.rules.downstream import serves
from tools.rules.rule_set import RuleSet
from tools.rules.upstreams import is_marked

MAX_BYTES: Final = 8 << 20
"""More than this goes into no answer."""


@attrs.frozen
class Expected:
    """The answer that a FetchSnapshot must have."""

    error: ErrorCode
    is_top_level: bool
    leader: tuple[ReplicaId, int, Endpoint | None]


class SnapshotRules(RuleSet):
    """RF30 and RF31."""

    HEARS = SEES = frozenset({FetchSnapshotRequest, SnapshotHashRequest})

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self._expected: Expected | None = None
        self._error: ErrorCode | None = None
        """The error that a SnapshotHash must have."""

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """Work out what the answer must be."""
        self._expected = self._error = None
        if type(event) is ev.RequestReceived:
            request = event.request
            if type(request) is FetchSnapshotRequest:
                state = self.state
                leader_id = -1 if state.leader_id is None else state.leader_id
                error, is_top_level = self._fetch_error(request)
                self._expected = Expected(error, is_top_level, (leader_id, state.epoch, state.leader_endpoint))
            elif type(request) is SnapshotHashRequest:
                self._error = self._hash_error(request)

    def _is_foreign(self, cluster_id: str | None) -> bool:
        return None not in (cluster_id, self.state.cluster_id) and cluster_id != self.state.cluster_id

    def _is_stored(self, snapshot_id: OffsetAndEpoch) -> bool:
        return snapshot_id != BOOTSTRAP_SNAPSHOT and snapshot_id in self.state.log.snapshots

    def _fetch_error(self, request: FetchSnapshotRequest) -> tuple[ErrorCode, bool]:
        state = self.state
        if state.config.strict and request.cluster_id is None:
            return ErrorCode.NONE, True  # the connection is closed
        if self._is_foreign(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID, True
        if [len(topic.partitions) for topic in request.topics] != [1]:
            return ErrorCode.INVALID_REQUEST, True
        partition = request.topics[0].partitions[0]
        if (request.topics[0].name, partition.partition) != (METADATA_TOPIC, 0):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False
        if partition.current_leader_epoch != state.epoch:
            is_old = partition.current_leader_epoch < state.epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH, False
        serves_observers = is_marked(request) and request.cluster_id == state.cluster_id
        serves_observers = serves_observers and serves(state, partition.current_leader_epoch)
        if not isinstance(state.role_state, Leader) and not serves_observers:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, False
        if state.shutdown_deadline_ms is not None:
            return ErrorCode.BROKER_NOT_AVAILABLE, False
        if not self._is_stored(_id_of(partition)):
            return ErrorCode.SNAPSHOT_NOT_FOUND, False
        return ErrorCode.POSITION_OUT_OF_RANGE if partition.position < 0 else ErrorCode.NONE, False

    def _hash_error(self, request: SnapshotHashRequest) -> ErrorCode:
        if self._is_foreign(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if not self._is_stored(OffsetAndEpoch(offset=request.end_offset, epoch=request.epoch)):
            return ErrorCode.SNAPSHOT_NOT_FOUND
        return ErrorCode.POSITION_OUT_OF_RANGE if request.position < 1 else ErrorCode.NONE

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """Compare."""
        if self._expected is not None:
            self._look_at_answer(self._expected, event, actions)
        elif self._error is not None:
            self._look_at_hash(self._error, event, actions)

    def _look_at_answer(self, expected: Expected, event: Any, actions: Sequence[act.Action]) -> None:
        kinds = (act.SendResponse, act.SendSnapshotChunk)
        answers: list[Any] = [
            action for action in actions if isinstance(action, kinds) and action.request_id == event.request_id
        ]
        response = answers[0].response if answers else None
        if len(answers) != 1 or isinstance(answers[0], act.SendSnapshotChunk) != (
            expected.error is ErrorCode.NONE and not expected.is_top_level
        ):
            raise BrokenRuleError("RF30", f"{event.request} is answered {answers}, must be {expected}")
        if expected.is_top_level:
            found = ErrorCode.NONE if response is None else response.error_code
            if found != expected.error or (response is not None and (not found or response.topics)):
                raise BrokenRuleError("RF30", f"{event.request} is answered {response}, must be {expected.error.name}")
            return
        self._look_at_fields(expected, event, answers[0])

    def _look_at_fields(self, expected: Expected, event: Any, answer: Any) -> None:
        topic, response, state = event.request.topics[0], answer.response, self.state
        asked = topic.partitions[0]
        leader_id, epoch, place = expected.leader
        wanted = (topic.name, expected.error, _id_of(asked), asked.position, leader_id, epoch)
        told = response.topics[0].partitions[0]
        leader = told.current_leader
        theirs = (response.topics[0].name, told.error_code, _id_of(told), told.position)
        nodes = [(node.node_id, node.host, node.port) for node in response.node_endpoints]
        places = [] if place is None or event.version < 1 else [(leader_id, place.host, place.port)]
        if (*theirs, leader.leader_id, leader.leader_epoch) != wanted or nodes != places:
            raise BrokenRuleError("RF30", f"{event.request} is answered {response}, must be {wanted} at {places}")
        if isinstance(answer, act.SendSnapshotChunk):
            max_bytes = min(max(event.request.max_bytes, 0), MAX_BYTES)
            if (answer.snapshot_id, answer.position, answer.max_bytes) != (_id_of(asked), asked.position, max_bytes):
                raise BrokenRuleError("RF30", f"{event.request} is answered with {answer}")
            if state.sent.get(answer.snapshot_id) != state.now_ms:
                raise BrokenRuleError("RF30", f"{answer.snapshot_id} is sent, and not kept for that: {state.sent}")

    def _look_at_hash(self, error: ErrorCode, event: Any, actions: Sequence[act.Action]) -> None:
        request = event.request
        wanted: act.Action = act.SendResponse(event.request_id, SnapshotHashResponse(error_code=error))
        if error is ErrorCode.NONE:
            snapshot_id = OffsetAndEpoch(offset=request.end_offset, epoch=request.epoch)
            wanted = act.SendSnapshotHash(event.request_id, snapshot_id, request.position)
        if wanted not in actions:
            raise BrokenRuleError("RF31", f"{request} is not answered with {wanted}, but {actions}")


def _id_of(partition: Any) -> OffsetAndEpoch:
    return OffsetAndEpoch(offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch)
