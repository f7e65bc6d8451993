"""Rules of patience: a request in vain is repeated after a pause, and the pauses grow.

They bound from below when a voter gives its leader up because a connection to it is refused, and when a leader hands
over to one voter again. Both are ours, beyond Kafka (decision 3): without the pauses a refused link makes hundreds of
pre-votes a second, and a voter that cannot lead is handed the leadership for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlib.config import PRIORITY_MAX
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Candidate, Follower, Leader, Link, Prospective, RoleState, Transfer
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import ReplicaId
from kraftlib.wire.messages.fetch import FetchResponse
from tools.rules.rule_set import RuleSet


class PatienceRules(RuleSet):
    """When something may be tried again.

    RP1  a voter whose connection to its leader is refused stands after its slot, and after a pause that doubles with
         each pre-vote which it has lost in a row to the same leader
    RP2  a leader hands over to the same voter again after `priority_takeover_ms`, doubled with each time in a row; that
         ends when none was needed for twice that pause and an election
    RP3  the receiver of a request that has failed, or has no answer in time, is left alone for a while
    """

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self._role: RoleState = core.state.role_state
        self._leader_and_epoch = (core.state.leader_id, core.epoch)
        self._stands_from_ms: int | None = None
        """Not before, this follower stands; None while nothing was refused."""
        self._deadline_ms = 0
        """When its fetch timeout ends, as it was before the refusal."""
        self._lost = 0
        """Pre-votes lost in a row to the same leader."""
        self._setbacks = 0
        """The number of its candidacies since it last committed something as leader."""
        self._hand_overs: dict[ReplicaId, tuple[int, int]] = {}
        """When leadership was handed to each voter, and how often in a row."""
        self._transfer: Transfer | None = None
        self._changes_voters = False
        self._in_vain: list[int] = []
        """The receivers of the requests that fail in this step."""

    def started(self, actions: Sequence[act.Action], now_ms: int) -> None:
        """A candidate of the life before still is one; that it stood then is forgotten."""
        self._role, self._leader_and_epoch = self.state.role_state, (self.state.leader_id, self.core.epoch)

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """A refused connection to the leader gives a follower a moment before which it does not stand."""
        role = self._role
        if self.state.connections.requests:
            self._note_failures(event, now_ms)
        if isinstance(role, Leader):
            self._changes_voters = role.change is not None
        elif type(event) is ev.ConnectionLost:
            if isinstance(role, Follower) and event.destination == role.leader_id:
                self._refused(role, now_ms)
        elif isinstance(event, ev.RequestReceived):
            self._stands_from_ms = None  # the leader may say that it leaves
        elif isinstance(event, ev.ResponseReceived) and _is_sign_of_life(event.response):
            self._lost, self._stands_from_ms = 0, None

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """See whether it has stood, or handed over, too early."""
        role, before = self.state.role_state, self._role
        if type(before) is Leader:
            self._handed_over(before, event, now_ms)
            if self._setbacks and any(type(action) is act.AdvanceHighWatermark for action in actions):
                self._setbacks = 0
        if self._in_vain:
            if role is before:
                self._rests_after_failures()
            self._in_vain = []
        if role is not before:
            self._role_changed(role, before, now_ms)

    # --- requests in vain ---------------------------------------------------------------------------------------------

    def _note_failures(self, event: ev.Event, now_ms: int) -> None:
        """Take note of the request that fails, and of those whose time is up."""
        requests, state = self.state.connections.requests, self.state
        answered = None
        if isinstance(event, ev.RequestFailed | ev.ResponseReceived):
            answered = requests.get(event.correlation_id)
        if isinstance(event, ev.RequestFailed) and answered is not None:
            is_settled = event.failure is ev.Failure.UNSUPPORTED_VERSION  # an old peer is asked that no more
            self._in_vain += [] if is_settled else [answered.destination]
        late_ms = max(now_ms, state.now_ms) - state.config.request_timeout_ms
        for request in requests.values():
            if request.sent_ms > late_ms:
                break
            if request is not answered:
                self._in_vain.append(request.destination)

    def _rests_after_failures(self) -> None:
        state = self.state
        for destination in self._in_vain:
            if state.config.retry_backoff_ms and not state.connections.is_backing_off(destination, state.now_ms):
                text = f"{state.id_text} may ask {destination} again at {state.now_ms}, at once after a failure"
                raise BrokenRuleError("RP3", text)

    # --- a refused connection ----------------------------------------------------------------------------------------

    def _role_changed(self, role: RoleState, before: RoleState, now_ms: int) -> None:
        state = self.state
        same = (state.leader_id, state.epoch) == self._leader_and_epoch
        if isinstance(role, Prospective) and isinstance(before, Follower) and same:
            self._stood(now_ms)
        elif not (same and isinstance(role, Follower) and isinstance(before, Prospective)):
            self._lost = 0
        else:
            self._lost += 1
        if isinstance(role, Candidate) or (isinstance(role, Leader) and not isinstance(before, Candidate)):
            self._setbacks += 1
        self._role, self._leader_and_epoch, self._stands_from_ms = role, (state.leader_id, state.epoch), None

    def _refused(self, role: Follower, now_ms: int) -> None:
        if role.link is not Link.WHOLE and self._stands_from_ms is None and self.state.is_voter:
            self._deadline_ms = role.fetch_deadline_ms
            self._stands_from_ms = now_ms + self._pause_ms() + self._slot_ms(role)

    def _stood(self, now_ms: int) -> None:
        earliest_ms = self._stands_from_ms
        if earliest_ms is not None and now_ms < min(earliest_ms, self._deadline_ms):
            raise BrokenRuleError(
                "RP1",
                f"{self.core.key} gives up a leader that refuses connections at {now_ms} ms, {self._lost} pre-votes"
                f" were lost in a row: not before {earliest_ms} ms",
            )

    def _pause_ms(self) -> int:
        config, slots = self.state.config, (1 << min(max(self._lost - 1, 0), 16)) - 1
        return min(slots * max(config.leader_loss_stagger_ms, 1), config.fetch_timeout_ms)

    def _slot_ms(self, role: Follower) -> int:
        """The voters that are left stand one after the other, in the order of their ids; one of priority sooner."""
        state = self.state
        rank = sum(1 for voter_id in state.voters.ids if voter_id < state.key.id and voter_id != role.leader_id)
        eagerness = state.config.election_priority >> min(self._setbacks, 6)
        return rank * state.config.leader_loss_stagger_ms * (PRIORITY_MAX - eagerness) // PRIORITY_MAX

    # --- a leader that hands over ------------------------------------------------------------------------------------

    def _handed_over(self, role: Leader, event: ev.Event, now_ms: int) -> None:
        transfer, state = role.transfer, self.state
        if transfer is None or transfer is self._transfer:
            return
        self._transfer = transfer
        is_asked_for = isinstance(event, ev.TransferRequested) or self._changes_voters or role.change is not None
        if is_asked_for or state.machine_failed_ms is not None:
            return  # a caller asked for it, or it does not come back
        at_ms, count = self._hand_overs.get(transfer.target_id, (0, 0))
        config = state.config
        pause_ms = config.priority_takeover_ms << count
        if count and now_ms < at_ms + pause_ms:
            raise BrokenRuleError(
                "RP2",
                f"{state.key} hands over to {transfer.target_id} at {now_ms} ms, time {count + 1} in a row, the last"
                f" one at {at_ms} ms: not before {at_ms + pause_ms} ms",
            )
        row_ends_ms = at_ms + 2 * (pause_ms + config.fetch_timeout_ms + config.election_timeout_ms)
        self._hand_overs[transfer.target_id] = (now_ms, count + 1 if now_ms < row_ends_ms else 1)


def _is_sign_of_life(response: object) -> bool:
    """Whether a leader has answered a Fetch."""
    return (
        isinstance(response, FetchResponse)
        and not response.error_code
        and not any(partition.error_code for topic in response.responses for partition in topic.partitions)
    )
