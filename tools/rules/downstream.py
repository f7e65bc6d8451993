"""A replica that serves observers though it does not lead (decision 0021).

| id | rule |
|---|---|
| RF45 | a marked Fetch gets committed records, a snapshot or nothing, of a replica that can, and the age of the news |
| RF46 | one that is held is told in rounds, longest waits first, and refused as soon as it cannot be served any more |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Prospective
from kraftlib.consensus.state import ReplicaState
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import METADATA_TOPIC_ID, Epoch, Offset, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from tools.rules.positions import divergence, snapshot_for
from tools.rules.rule_set import RuleSet
from tools.rules.upstreams import AGE, is_marked

HELD_MAX_MS = 60_000
MAX_BYTES = 8 << 20
ROUND_PAUSE_MS = 2
AGE_MAX = 2**31 - 1


def serves(state: ReplicaState, epoch: Epoch) -> bool:
    """Whether a replica that follows in this epoch knows what is committed, and has all of it."""
    follows = isinstance(state.role_state, Follower | Prospective) and state.role_state.leader_id is not None
    known = state.high_watermark
    has_all = known is not None and known <= state.log.end_offset and not state.log.holes
    is_able = state.config.private_apis and state.shutdown_deadline_ms is None
    return follows and has_all and is_able and epoch == state.epoch and state.upstreams.current_ms is not None


def to_serve(state: ReplicaState, event: ev.RequestReceived[Any]) -> Any:
    """Return the partition of a Fetch that this replica serves though it does not lead; None of any other request."""
    request = event.request
    is_one = [len(topic.partitions) for topic in request.topics] == [1] and request.topics[0].partitions[
        0
    ].partition == 0
    if not is_one or request.topics[0].topic_id != METADATA_TOPIC_ID or not is_marked(request) or event.version < 13:
        return None
    partition = request.topics[0].partitions[0]
    sender_id = max(request.replica_id, request.replica_state.replica_id)
    if min(request.max_wait_ms, partition.fetch_offset, partition.last_fetched_epoch, sender_id) < 0:
        return None
    if not serves(state, partition.current_leader_epoch) or sender_id == state.key.id:
        return None
    if request.cluster_id != state.cluster_id:
        return None
    is_ahead = partition.fetch_offset > (state.high_watermark or 0)
    position = partition.fetch_offset, partition.last_fetched_epoch
    if is_ahead or snapshot_for(state.log, *position) is not None:
        return partition
    return partition if divergence(state.log, *position) is None else None


@attrs.define
class Held:
    """A Fetch that waits for its answer."""

    offset: Offset
    max_bytes: int
    is_ahead: bool
    known: Offset
    """The high watermark that is no news for it."""
    deadline_ms: int
    news_ms: int | None = None


class DownstreamRules(RuleSet):
    """RF45 and RF46."""

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self._held: dict[int, Held] = {}
        self._epoch: Epoch = -1
        self._now: tuple[int, Held, OffsetAndEpoch | None] | None = None
        """The request that must be answered at once, and with which snapshot id, if with any."""
        self._known: dict[int, Offset] = {}
        """The high watermark at the last Fetch of each observer."""
        self._round_ms = 0

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """Work out whether a Fetch is answered at once."""
        self._now = None
        if type(event) is not ev.RequestReceived or type(event.request) is not FetchRequest:
            return
        if not event.request.unknown_tagged_fields:
            return
        state, request = self.state, event.request
        partition = to_serve(state, event)
        if partition is None:
            return
        offset, committed = partition.fetch_offset, state.high_watermark or 0
        known = min(partition.high_watermark, committed)
        at_ms = max(now_ms, state.now_ms)
        held = Held(offset, request.max_bytes, offset > committed, known, at_ms + min(request.max_wait_ms, HELD_MAX_MS))
        snapshot_id = None if held.is_ahead else snapshot_for(state.log, offset, partition.last_fetched_epoch)
        if snapshot_id is None:
            sender_id = max(request.replica_id, request.replica_state.replica_id)
            before, self._known[sender_id] = self._known.get(sender_id), committed
            kept_up = before is not None and offset >= before
            if (offset < committed and not kept_up) or request.max_wait_ms == 0:
                self._now = event.request_id, held, None
            else:
                self._held[event.request_id], self._epoch = held, state.epoch
        else:
            self._now = event.request_id, held, snapshot_id

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """Compare. Raises: BrokenRuleError."""
        if not self._held and self._now is None:
            return
        answers = _answers(actions)
        if self._now is not None:
            number, held, snapshot_id = self._now
            if number not in answers:
                raise BrokenRuleError("RF45", f"a marked Fetch is not answered: {held}")
            self._look_at_answer(held, snapshot_id, answers[number])
        before = dict(self._held)
        late, told = 0, 0
        for number, held in before.items():
            if number in answers:
                del self._held[number]
                if not self._is_refused(held, answers[number]):
                    self._look_at_answer(held, None, answers[number])
                    is_late = held.deadline_ms <= self.state.now_ms
                    late, told = late + is_late, told + (not is_late)
        self._look_at_waiting(before, late=late, told=told)

    def _serves_on(self) -> bool:
        return serves(self.state, self._epoch)

    def _is_refused(self, held: Held, answer: Any) -> bool:
        partition = answer.response.responses[0].partitions[0]
        if self._serves_on() != (partition.error_code == ErrorCode.NONE):
            raise BrokenRuleError("RF46", f"{held} is answered {answer.response}, served: {self._serves_on()}")
        return bool(partition.error_code != ErrorCode.NONE)

    def _look_at_answer(self, held: Held, snapshot_id: OffsetAndEpoch | None, answer: Any) -> None:
        state, response = self.state, answer.response
        partition, committed = response.responses[0].partitions[0], state.high_watermark or 0
        current_ms = state.upstreams.current_ms
        age_ms = AGE_MAX if current_ms is None else min(max(0, state.now_ms - current_ms), AGE_MAX)
        if dict(response.unknown_tagged_fields) != {AGE: struct.pack(">i", age_ms)}:
            raise BrokenRuleError("RF45", f"the age of the news is {response.unknown_tagged_fields}, must be {age_ms}")
        leader = partition.current_leader
        told = (partition.error_code, partition.high_watermark, leader.leader_id, leader.leader_epoch)
        if told != (ErrorCode.NONE, committed, state.leader_id, state.epoch):
            raise BrokenRuleError("RF45", f"an observer is told {told}, committed is {committed}")
        named = partition.snapshot_id
        wanted = (-1, -1) if snapshot_id is None else (snapshot_id.offset, snapshot_id.epoch)
        if (named.end_offset, named.epoch) != wanted or partition.diverging_epoch.epoch >= 0:
            raise BrokenRuleError("RF45", f"an observer is told {named} and {partition.diverging_epoch}: {wanted}")
        may_have = not held.is_ahead and state.log.start_offset <= held.offset < committed and snapshot_id is None
        gets: Any = isinstance(answer, act.AnswerObservers) and answer.start_offset is not None
        if gets != may_have:
            raise BrokenRuleError("RF45", f"{held} is answered {answer}, committed is {committed}")
        if gets:
            limits = held.offset, committed, min(max(held.max_bytes, 1), MAX_BYTES)
            if (answer.start_offset, answer.end_offset, answer.max_bytes) != limits:
                raise BrokenRuleError("RF45", f"{held} is answered {answer}, must be {limits}")

    def _look_at_waiting(self, before: dict[int, Held], *, late: int, told: int) -> None:
        state = self.state
        committed, now_ms = state.high_watermark or 0, state.now_ms
        if self._held and not self._serves_on():
            raise BrokenRuleError("RF46", f"{self._held} wait for a replica that does not serve them")
        waiting: list[Held] = []
        for number, held in before.items():
            if (held.is_ahead or held.offset >= committed) and held.known >= committed:
                continue
            held.news_ms = now_ms if held.news_ms is None else held.news_ms
            if number in self._held:
                waiting.append(held)
            elif waiting and held.deadline_ms > now_ms and self._serves_on():
                raise BrokenRuleError("RF46", f"{held} is told before {waiting[0]}, which has waited longer")
        if told and waiting and late + told < state.config.observers_at_once:
            raise BrokenRuleError("RF46", f"{told} observers are told at {now_ms}, and {len(waiting)} wait")
        if told or late:
            self._round_ms = now_ms
        for held in self._held.values():
            due_ms = max(held.news_ms or 0, self._round_ms + ROUND_PAUSE_MS + state.config.observer_round_ms)
            if held.deadline_ms <= now_ms or (held in waiting and due_ms < now_ms):
                raise BrokenRuleError("RF46", f"{held} is not answered at {now_ms}, it was due at {due_ms}")


def _answers(actions: Sequence[act.Action]) -> dict[int, Any]:
    """Return the answers by the number of the request."""
    found: dict[int, Any] = {}
    for action in actions:
        if isinstance(action, act.AnswerObservers):
            found.update(dict.fromkeys(action.request_ids, action))
        elif isinstance(action, act.SendResponse | act.SendRecords):
            found[action.request_id] = action
    return found
