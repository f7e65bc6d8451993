"""The rule of failures in a row: each receiver of a request is left alone the longer the more often it has failed.

A wrong count or pause does no harm for long: a row that never ends makes a replica slow once a network is lost, and one
that never grows makes it ask a dead one thousands of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.outstanding import Outstanding
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, RoleState
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsResponse
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from kraftlib.wire.messages.election_priority import ElectionPriorityResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochResponse
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterResponse, RemoveRaftVoterResponse
from kraftlib.wire.messages.snapshot_hash import SnapshotHashResponse
from kraftlib.wire.messages.state_digest import StateDigestResponse
from kraftlib.wire.messages.vote import VoteResponse
from tools.rules.rule_set import RuleSet

LONGEST_MS: Final = 500
"""The longest pause after a failure, whatever their number."""
MOST: Final = 16
"""Failures in a row are counted up to this."""

WITHOUT_A_PLACE: Final = frozenset({
    AddRaftVoterResponse, ApiVersionsResponse, ElectionPriorityResponse, RemoveRaftVoterResponse, SnapshotHashResponse,
    StateDigestResponse,
})  # fmt: skip
"""Answers that say only whether it was done."""
TELLING: Final = frozenset({
    ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH,
})  # fmt: skip
"""The errors of a Fetch beside which a replica tells who leads."""
OF_AN_ELECTION: Final = frozenset({VoteResponse, BeginQuorumEpochResponse, EndQuorumEpochResponse})


class FailureRules(RuleSet):
    """The failures in a row of the receivers of requests.

    RP4  the failures of a receiver in a row are counted, and end with an answer that says nothing of a mistake, or who
         leads; after the n-th it is left alone for one to two times the retry backoff, doubled n - 1 times, half a
         second at most
    """

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self._role: RoleState | None = None
        self._before: dict[int, int] = {}
        """The failures in a row of each receiver of a request, before this step."""
        self._late: set[int] = set()
        """The receivers of requests whose time is up with this step."""
        self._answered: Outstanding[Any] | None = None

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """Look at what is under way."""
        connections, state = self.state.connections, self.state
        requests = connections.requests
        if not requests:
            self._before, self._answered = {}, None
            return
        self._role = state.role_state
        self._before = {one.destination: connections.failures(one.destination) for one in requests.values()}
        is_about_one = isinstance(event, ev.ResponseReceived | ev.RequestFailed)
        self._answered = requests.get(event.correlation_id) if is_about_one else None  # type: ignore[union-attr]
        until_ms = max(now_ms, state.now_ms) - state.config.request_timeout_ms
        self._late = {
            one.destination for one in requests.values() if one.sent_ms <= until_ms and one is not self._answered
        }

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """Compare. Raises: BrokenRuleError."""
        if not self._before or isinstance(event, ev.SnapshotRefused | ev.RepairRefused):
            return  # these two blame the leader without a request
        state, answered = self.state, self._answered
        is_new_role = state.role_state is not self._role
        for receiver, before in self._before.items():
            # All that was asked in another role is forgotten, and who failed at it.
            count, known = state.connections.failures(receiver), 0 if is_new_role else before
            is_answered = answered is not None and answered.destination == receiver
            if not is_new_role and (receiver in self._late or (is_answered and _is_failure(event))):
                self._is_left_alone(receiver, count, {min(known + 1, MOST)})
                continue
            if count == known:
                continue
            if not is_answered and receiver not in self._late:
                raise self._broken(f"{receiver} has failed {count} times in a row, {known} before, and was not heard")
            if count:
                # An answer that ends a row may be of no use all the same.
                allowed = {min(known + 1, MOST), 1} if type(event) is ev.ResponseReceived else {min(known + 1, MOST)}
                self._is_left_alone(receiver, count, allowed)
            elif type(event) is not ev.ResponseReceived:
                raise self._broken(f"the {known} failures of {receiver} are forgotten after {type(event).__name__}")
        if answered is None or not (self._has_told_the_leader(event) if is_new_role else self._is_clean(event)):
            return
        if count := state.connections.failures(answered.destination):
            raise self._broken(f"{answered.destination} has answered, and has failed {count} times in a row")

    def _has_told_the_leader(self, event: ev.Event) -> bool:
        """Whether this is the answer to a Fetch from which a follower has learned of its leader."""
        response: Any = event.response if isinstance(event, ev.ResponseReceived) else None
        if type(response) is not FetchResponse or type(self.state.role_state) is not Follower or response.error_code:
            return False
        errors = {partition.error_code for topic in response.responses for partition in topic.partitions}
        return errors <= TELLING

    def _is_left_alone(self, receiver: int, count: int, allowed: set[int]) -> None:
        if count not in allowed:
            raise self._broken(f"{receiver} has failed {count} times in a row, must be one of {sorted(allowed)}")
        state = self.state
        shortest_ms, longest_ms = state.config.retry_backoff_ms, max(0, 2 * state.config.retry_backoff_ms - 1)
        low, high = (min(pause_ms << (count - 1), max(pause_ms, LONGEST_MS)) for pause_ms in (shortest_ms, longest_ms))
        connections, at_ms = state.connections, state.now_ms
        is_left_alone = not low or connections.is_backing_off(receiver, at_ms + low - 1)
        if not is_left_alone or connections.is_backing_off(receiver, at_ms + high):
            raise self._broken(f"after failure {count} in a row {receiver} must be left alone for {low} to {high} ms")

    def _is_clean(self, event: ev.Event) -> bool:
        """Whether this is an answer that says that all is well, and of no other leader or epoch."""
        response: Any = event.response if isinstance(event, ev.ResponseReceived) else None
        if type(response) in WITHOUT_A_PLACE:
            return not response.error_code or type(response) is SnapshotHashResponse
        if type(response) not in OF_AN_ELECTION or response.error_code or len(response.topics) != 1:
            return False
        topic = response.topics[0]
        if len(topic.partitions) != 1 or topic.topic_name != "__cluster_metadata":
            return False
        said, state = topic.partitions[0], self.state
        known = -1 if state.leader_id is None else state.leader_id
        place = (said.partition_index, said.error_code, said.leader_epoch, said.leader_id)
        return place == (0, 0, state.epoch, known)

    def _broken(self, text: str) -> BrokenRuleError:
        return BrokenRuleError("RP4", f"{self.state.id_text} at {self.state.now_ms}: {text}")


def _is_failure(event: ev.Event) -> bool:
    """Whether a request has failed, and not for the age of its receiver, which is asked that no more."""
    return type(event) is ev.RequestFailed and event.failure is not ev.Failure.UNSUPPORTED_VERSION
