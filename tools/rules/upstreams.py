"""Observers that fetch from other replicas than the leader: the upstreams that they ask and leave (decision 0021).

| id | rule |
|---|---|
| RF43 | an observer fetches from the first upstream that does not rest, and marks it, else from the leader |
| RF44 | an upstream rests after it has failed or refused, or had no news for a fetch timeout, and for no other reason |
| RF48 | each time that an upstream is left is counted, and an operator is warned of each of them |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower
from kraftlib.consensus.state import WARNINGS_MAX, ReplicaState
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from tools.rules.rule_set import RuleSet

MARK: Final = 10_002
AGE: Final = 10_003
"""The tagged fields of a request to an upstream, and of its answer."""

FIRST: Final = -500_000
"""The first upstream, as the destination of a request; the others are below."""

AGE_MAX: Final = 2**31 - 1
"""The age that an answer has whose field is no age."""

REST_MAX: Final = 32
"""An upstream that is left again and again rests for so many fetch timeouts, up to twice that."""

LEFT: Final = "upstream left"

REFUSED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE)


def has_upstreams(state: ReplicaState, now_ms: int | None = None) -> bool:
    """Whether a replica fetches from upstreams, now or at `now_ms`: it has some, is no voter, and repairs nothing."""
    now_ms = state.now_ms if now_ms is None else max(now_ms, state.now_ms)
    is_damaged = bool(state.log.holes) or state.amnesia is not None or state.digests.quarantine is not None
    is_to_vote = state.is_voter or now_ms < state.upstreams.wanted_until_ms
    return bool(state.config.upstreams) and not is_damaged and not is_to_vote


def awake(state: ReplicaState) -> list[tuple[int, Endpoint]]:
    """Return the upstreams that do not rest, in the order of the configuration."""
    if not has_upstreams(state):
        return []
    places = [(FIRST - number, place) for number, place in enumerate(state.config.upstreams)]
    rests = state.upstreams.resting_until_ms
    return [(number, place) for number, place in places if rests.get(number, 0) <= state.now_ms]


def source(state: ReplicaState) -> int | None:
    """Return the upstream that is to be fetched from; None: the leader."""
    return next((number for number, _ in awake(state)), None)


def is_upstream(destination: int) -> bool:
    """Whether a request goes to an upstream."""
    return -1_000_000 < destination <= FIRST


def is_marked(request: Any) -> bool:
    """Whether a request is one to an upstream."""
    return any(tag == MARK for tag, _ in request.unknown_tagged_fields)


class UpstreamRules(RuleSet):
    """RF43, RF44 and RF48."""

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self._rests: dict[int, int] = {}
        self._failures: dict[int, int] = {}
        self._chosen: int | None = None
        self._times_left = 0
        self._leaves: bool | None = False
        """Whether the event is a reason to leave the upstream that is asked; None: perhaps."""

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """Judge whether the upstream is of use."""
        state = self.state
        if not state.config.upstreams:
            return
        own = state.upstreams
        self._rests, self._failures, self._chosen = dict(own.resting_until_ms), dict(own.failures), own.chosen
        self._times_left = state.refused.get(LEFT, 0)
        self._leaves = self._chosen is not None and self._is_left(event, max(now_ms, state.now_ms))

    def _is_left(self, event: Any, now_ms: int) -> bool:
        requests, chosen, late_ms = self.state.connections.requests, self._chosen, self.state.config.request_timeout_ms
        number = event.correlation_id if isinstance(event, ev.ResponseReceived | ev.RequestFailed) else None
        if any(
            one.destination == chosen and one.sent_ms + late_ms <= now_ms and one.correlation_id != number
            for one in requests.values()
        ):
            return True
        asked = requests.get(number) if number is not None else None
        if asked is None or asked.destination != chosen:
            return isinstance(event, ev.SnapshotRefused) or getattr(event, "destination", None) == chosen
        if isinstance(event, ev.RequestFailed):
            return True
        if isinstance(asked.request, FetchSnapshotRequest):
            return self._refuses_to_send(event.response)
        return isinstance(asked.request, FetchRequest) and asked.question is not None and self._is_old(event, now_ms)

    def _is_old(self, event: ev.ResponseReceived[Any], now_ms: int) -> bool:
        response, state = event.response, self.state
        topics = response.responses
        is_one = [(topic.topic_id, len(topic.partitions)) for topic in topics] == [(METADATA_TOPIC_ID, 1)]
        is_ours = is_one and topics[0].partitions[0].partition_index == 0
        if response.error_code or not is_ours or self._refuses(topics):
            return True
        partition, heard_ms = topics[0].partitions[0], max(state.upstreams.heard_ms, state.upstreams.chosen_ms)
        if not partition.error_code and partition.current_leader.leader_epoch == state.epoch:
            said = dict(response.unknown_tagged_fields).get(AGE, struct.pack(">i", 0))
            age_ms = max(struct.unpack(">i", said)[0], 0) if len(said) == 4 else AGE_MAX
            heard_ms = max(heard_ms, now_ms - age_ms)
        return now_ms - heard_ms >= state.config.fetch_timeout_ms

    def _refuses_to_send(self, response: Any) -> bool:
        if response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR and isinstance(self.state.role_state, Follower):
            return False  # a replica of Kafka says so when it has that snapshot no more
        places = [(topic.name, one.index) for topic in response.topics for one in topic.partitions]
        return bool(response.error_code) or places != [(METADATA_TOPIC, 0)] or self._refuses(response.topics)

    def _refuses(self, topics: Sequence[Any]) -> bool:
        partitions = [partition for topic in topics for partition in topic.partitions]
        epoch = self.state.epoch
        return any(one.error_code in REFUSED and one.current_leader.leader_epoch == epoch for one in partitions)

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """Compare. Raises: BrokenRuleError."""
        state = self.state
        if state.config.upstreams:
            rests = state.upstreams.resting_until_ms
            left = [number for number, until_ms in rests.items() if self._rests.get(number) != until_ms]
            if left != [self._chosen] * bool(self._leaves):
                raise BrokenRuleError("RF44", f"{left} is left at {event}, asked was {self._chosen}: {self._leaves}")
            if (times := state.refused.get(LEFT, 0) - self._times_left) != len(left):
                raise BrokenRuleError("RF48", f"{left} is left, and {times} are counted")
            for number in left:
                if (LEFT, number) not in state.warned and len(state.warned) < WARNINGS_MAX:
                    raise BrokenRuleError("RF48", f"no operator is warned that {number} is left")
                self._look_at_rest(rests[number] - state.now_ms, self._failures.get(number, 0))
        if type(event) is ev.RequestReceived and type(event.request) is BeginQuorumEpochRequest:
            self._look_at_introduction(event, actions)
        for action in actions:
            if type(action) is act.SendRequest and type(action.request) in (FetchRequest, FetchSnapshotRequest):
                self._look_at_request(action)

    def _look_at_introduction(self, event: ev.RequestReceived[Any], actions: Sequence[act.Action]) -> None:
        """A replica that the leader takes for a voter needs the record that says so."""
        answers = [one for one in actions if isinstance(one, act.SendResponse) and one.request_id == event.request_id]
        topics: Any = [topic for answer in answers for topic in getattr(answer.response, "topics", ())]
        is_accepted = [[one.error_code for one in topic.partitions] for topic in topics] == [[ErrorCode.NONE]]
        until_ms = self.state.now_ms + 2 * self.state.config.fetch_timeout_ms
        is_meant = event.request.voter_id == self.state.key.id
        if is_accepted and is_meant and self.state.upstreams.wanted_until_ms < until_ms:
            raise BrokenRuleError("RF43", f"{event.request} is accepted, and upstreams are asked before {until_ms}")

    def _look_at_rest(self, rest_ms: int, failures: int) -> None:
        least_ms = self.state.config.fetch_timeout_ms * min(1 << failures, REST_MAX)
        # An answer that is of use ends the row, and may come with the event.
        if not self.state.config.fetch_timeout_ms <= rest_ms < 2 * least_ms:
            raise BrokenRuleError("RF44", f"it rests for {rest_ms} ms, must for {least_ms} to {2 * least_ms}")

    def _look_at_request(self, action: act.SendRequest[Any]) -> None:
        request, role = action.request, self.state.role_state
        if isinstance(request, FetchRequest):
            kept = self.state.connections.requests.get(action.correlation_id)
            if kept is None or kept.question is None:
                if is_marked(request):
                    raise BrokenRuleError("RF43", f"{action.destination} is asked who leads, and for records")
                return
        wanted = source(self.state)
        leader_id = role.leader_id if isinstance(role, Follower) else None
        if action.destination != (leader_id if wanted is None else wanted) or is_marked(request) != (
            wanted is not None
        ):
            text = f"{type(request).__name__} to {action.destination}, marked: {is_marked(request)}"
            raise BrokenRuleError("RF43", f"{text}; must be to {wanted}, else to {leader_id}")
