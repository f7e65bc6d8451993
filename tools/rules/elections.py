"""The rules of elections: roles, votes, epochs, timers, and what is durable before it is spoken (KIP-595, 853, 996)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Leader, Role
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import LeaderAndEpoch
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftlib.wire.messages.vote import VoteRequest
from tools.rules import election_answers, election_requests, leading
from tools.rules.election_answers import Before
from tools.rules.election_deeds import LogBefore, judge_first_batch, judge_order
from tools.rules.election_life import Life
from tools.rules.election_memory import judge_memory
from tools.rules.election_parts import (
    Asking,
    Following,
    Forgotten,
    Leading,
    Resigned,
    Unattached,
    same_replica,
)
from tools.rules.election_polls import poll
from tools.rules.election_sends import judge_sends, owes_requests
from tools.rules.election_times import Draws, judge_draws, judge_end, judge_wake
from tools.rules.rule_set import RuleSet

REQUESTS: Final[dict[type, str]] = {VoteRequest: "RV1", BeginQuorumEpochRequest: "RV2", EndQuorumEpochRequest: "RV3"}
"""The rule that judges the answer to each."""

DOUBTS: Final = ("epoch jump", "two leaders", "unknown leadership")
"""How mistakes are counted that are about epochs and leaders."""

WAKES: Final = frozenset(
    {
        ev.TimeoutReached, ev.ConnectionLost, ev.RequestFailed, ev.TransferRequested, ev.RecordsSubmitted, ev.Flushed,
        ev.ResponseReceived,
    }
)  # fmt: skip
"""Events that set timers."""

MARKS: Final = frozenset({act.PersistElection, act.AnnounceLeader, act.RefuseAppends})
"""Actions that say which way a replica has gone through its roles."""


class ElectionRules(RuleSet):
    """Follows one life through its elections."""

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self.life = Life(core)
        self._before = Before(question=(), fills=False)
        self._own_end = (0, 0)
        self._went_too_far = False
        self._role_state: Any = None
        self._kinds: set[type] = set()
        self._doubts = 0
        self._setbacks = 0
        core.state.random = self._draws = Draws(core.state.random)
        log = core.state.log
        self._log_before = LogBefore(
            log.end_offset, self.life.voters, log.voters.latest_offset, log.kraft_version.latest
        )
        self._election_before = self.life.persisted
        self._last_epoch, self._lacks_epoch = log.last_epoch, bool(log.holes) and not log.epoch_starts

    # --- the steps ---------------------------------------------------------------------------------------------------

    def started(self, actions: Sequence[act.Action], now_ms: int) -> None:
        """The first role follows from what is durable (KIP-595, "Initialization")."""
        life = self.life
        life.now_ms = now_ms
        recorded = life.persisted
        if recorded.epoch < self._last_epoch:
            recorded = attrs.evolve(recorded, epoch=self._last_epoch, leader_id=None, voted_key=None)
        life.epoch = recorded.epoch
        life.purse_ms, life.purse_at_ms = life.purse_ms - recorded.epoch_debt_ms, now_ms
        if recorded.amnesiac or self._lacks_epoch:
            life.forgotten = Forgotten()
        places = {} if recorded.leader_id is None else life.voter_endpoints(recorded.leader_id)
        voted, timer = recorded.voted_key, life.election_timer()
        if recorded.leader_id == life.key.id:
            life.part = Resigned(timer=timer, unacknowledged={voter.key.id for voter in life.remote_voters})
        elif voted is not None and life.may_stand and same_replica(voted, life.key):
            life.part = Asking(role=Role.CANDIDATE, timer=timer, electors=life.voters, granted={life.key.id})
        elif recorded.leader_id is not None and places:
            until = life.exactly(life.config.fetch_timeout_ms)
            life.part = Following(leader_id=recorded.leader_id, endpoints=places, timer=until, voted=voted)
        else:
            timer_or_none = timer if life.may_stand else None
            life.part = Unattached(leader_id=recorded.leader_id, voted=voted, timer=timer_or_none)
        life.write()
        leader_id = None if isinstance(life.part, Resigned) else life.leader_id
        life.due.append(act.AnnounceLeader(LeaderAndEpoch(leader_id, life.epoch)))
        if life.may_stand and len(life.voters.voters) == 1:
            if isinstance(life.part, Asking) and life.part.won:
                life.leader()
            else:
                life.prospective()
        self._kinds = set(map(type, actions))
        self._settle(actions, None)

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """Take a look at what the answer depends on."""
        life, state = self.life, self.state
        if now_ms > life.now_ms:
            life.now_ms = now_ms
        life.entered = life.is_sent_to_snapshot = life.is_in_doubt = False
        self._doubts = self._doubts_counted()
        life.reads = bool(state.reads)
        part = type(life.part)
        if part is Leading:
            life.leading_role = state.role_state
        self._election_before = life.persisted
        if part is Asking or len(life.voters.voters) == 1:
            log = state.log  # it may lead when this is over
            self._log_before = LogBefore(
                log.end_offset, log.voters.latest, log.voters.latest_offset, log.kraft_version.latest
            )
        kind = type(event)
        if kind is ev.RequestReceived:
            if type(event.request) is VoteRequest:  # type: ignore[union-attr]
                self._own_end = state.log.last_epoch, state.log.end_offset
        elif kind is ev.ResponseReceived and (part is Following or life.forgotten is not None):
            self._before = Before(question=life.question(), fills=state.filling is not None, others=life.other_voters())
        elif kind is ev.LogTruncated:
            self._went_too_far = event.end_offset < min(state.committed_offset, state.log.end_offset)  # type: ignore[union-attr]
        elif kind is ev.ResponseReceived and isinstance(state.role_state, Leader):
            change = state.role_state.change
            is_probing = change is not None and change.wanted is None
            is_probing = is_probing and isinstance(change.request, AddRaftVoterRequest)  # type: ignore[union-attr]
            self._before = Before(question=(), fills=False, probed=change.voter_id if is_probing else None)  # type: ignore[union-attr]

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """Take the step that the core must have taken, and compare."""
        life = self.life
        kind = type(event)
        life.reads = life.reads or bool(self.state.reads) or kind is ev.ReadBarrierRequested
        take = TAKEN.get(kind)
        if take is not None:
            take(self, event, actions)
        kinds = self._kinds = set(map(type, actions))
        if act.QuarantineState in kinds:
            self.machine_failed(event, actions)
        if act.AdvanceHighWatermark in kinds:
            if isinstance(life.part, Leading) and kind in (ev.RequestReceived, ev.Flushed):
                life.part.stalled_since_ms, life.setbacks, life.stalls = None, 0, 0
            elif kind in (ev.ResponseReceived, ev.CommitLearned):
                life.stalls = 0
        self._settle(actions, event)
        if life.is_in_doubt and self._doubts_counted() == self._doubts:
            raise BrokenRuleError("RV20", f"{self.state.id_text} does not believe {event}, and counts no mistake")

    def _doubts_counted(self) -> int:
        refused = self.state.refused
        return sum(refused.get(reason, 0) for reason in DOUBTS) if refused else 0

    def _settle(self, actions: Sequence[act.Action], event: ev.Event | None) -> None:
        life, state = self.life, self.state
        life.look_at_log()
        was_leading = type(life.part) is Leading and not life.entered
        is_new_role = state.role_state is not self._role_state
        moved = poll(life, actions, is_new_role=is_new_role)
        is_quiet = not is_new_role and not life.entered and not life.due
        self._role_state = state.role_state
        if not is_quiet or not MARKS.isdisjoint(self._kinds) or (state.amnesia is None) is (life.forgotten is not None):
            self._compare(actions)
        if life.due:
            judge_order(life, event, actions, self._election_before)
        if not was_leading and isinstance(life.part, Leading):
            judge_first_batch(life, life.part, actions, self._log_before)
        if act.SendRequest in self._kinds or life.forgotten is not None or owes_requests(life):
            judge_sends(life, actions, after=moved)
        if type(life.part) is Leading:
            self._rv18_takes_records(life.part)
        judge_memory(life)
        if life.due:
            life.due.clear()
        if life.entered or type(event) in WAKES:
            judge_wake(life)
        if life.shutdown_ms is not None or act.ShutdownComplete in self._kinds:
            judge_end(life, actions)
        if self._draws.widths:
            judge_draws(life, self._draws.widths, self._setbacks)
            self._draws.widths.clear()
        self._setbacks = life.setbacks

    def _rv18_takes_records(self, part: Leading) -> None:
        """Nothing is appended while a leader hands over; else it takes records as soon as its log is flushed."""
        log, takes = self.state.log, self.core.wants_records
        if takes if part.transfer is not None else (not takes and log.flushed_offset == log.end_offset):
            text = (
                f"{self.state.id_text} {'takes' if takes else 'takes no'} records, flushed to {log.flushed_offset} of"
            )
            raise BrokenRuleError("RV18", f"{text} {log.end_offset}, and hands over to {part.transfer}")

    # --- what is compared --------------------------------------------------------------------------------------------

    def _compare(self, actions: Sequence[act.Action]) -> None:
        life, state = self.life, self.state
        if (state.role, state.epoch) != (life.part.role, life.epoch):
            raise BrokenRuleError(
                "RV9",
                f"{state.id_text} is {state.role} in epoch {state.epoch} at {life.now_ms}, and must be"
                f" {life.part.role} in epoch {life.epoch}: {life.part}",
            )
        if state.leader_id != life.leader_id or (state.amnesia is None) is not (life.forgotten is None):
            raise BrokenRuleError(
                "RV10",
                f"{state.id_text} knows leader {state.leader_id}, amnesia {state.amnesia}; due is {life.leader_id},"
                f" {life.forgotten}",
            )
        if life.due or not MARKS.isdisjoint(self._kinds):
            marks = [_mark(action) for action in actions if type(action) in MARKS]
            due = [_mark(action) for action in life.due]
            if marks != due:
                raise BrokenRuleError("RV11", f"{state.id_text} asks for {marks}, in this order; due is {due}")
        version = state.log.kraft_version.latest
        if any(isinstance(action, act.PersistElection) and action.kraft_version != version for action in actions):
            raise BrokenRuleError("RV11", f"{state.id_text} writes its election for another version than {version}")

    # --- what is heard -----------------------------------------------------------------------------------------------

    def request(self, event: ev.RequestReceived[Any], actions: Sequence[act.Action]) -> None:
        """A request changes what it must, and has the one answer that is right."""
        life, part = self.life, self.life.part
        kind = type(event.request)
        if kind is VoteRequest:
            expected = election_requests.vote(life, event, self._own_end)
        elif kind is BeginQuorumEpochRequest:
            expected = election_requests.begin_quorum_epoch(life, event)
        elif kind is EndQuorumEpochRequest:
            expected = election_requests.end_quorum_epoch(life, event)
        else:
            if isinstance(part, Leading):
                leading.asked(life, part, event, actions, self.state.log.end_offset)
                self._rv15_check_quorum(part)
                if kind is RemoveRaftVoterRequest:
                    self._take_over_transfer(part, event.request)
            return
        answers = [a.response for a in actions if type(a) is act.SendResponse and a.request_id == event.request_id]
        if len(answers) != 1 or not _is_answer(answers[0], expected):
            raise BrokenRuleError(
                REQUESTS[kind],
                f"{self.state.id_text} answers {event.request} in version {event.version} with {answers}, and"
                f" must answer {expected}; it has the log end {self._own_end}, and is {life.part}",
            )

    def _rv15_check_quorum(self, part: Leading) -> None:
        """A leader has its whole time again once a majority has asked it for something, and not before."""
        role, life = self.state.role_state, self.life
        if role is not life.leading_role or not isinstance(role, Leader):
            return
        if role.check_quorum_deadline_ms != part.quorum_until_ms:
            text = f"check quorum of {self.state.id_text} ends at {role.check_quorum_deadline_ms}, and must at"
            raise BrokenRuleError("RV15", f"{text} {part.quorum_until_ms}, with contact to {part.contacts} since")

    def _take_over_transfer(self, part: Leading, request: RemoveRaftVoterRequest) -> None:
        """A leader that is to be removed hands over first, to whom the rules of voter changes say.

        That takes the place of a transfer that was asked for before.
        """
        role = self._role_state
        if role.change is not None and role.change.request is request and role.transfer is not None:
            part.transfer = role.transfer.target_id, role.transfer.deadline_ms

    def response(self, event: ev.ResponseReceived[Any], actions: Sequence[act.Action]) -> None:
        """An answer counts once, for the role and the question that it answers."""
        election_answers.heard(self.life, event, actions, self._before)
        self._look_for_lost_ends(actions)

    def truncated(self, event: ev.LogTruncated, actions: Sequence[act.Action]) -> None:
        """Whole batches go: with the rest of the last one, committed records or a hole may go."""
        life = self.life
        if self._went_too_far and life.forgotten is None:
            life.forgotten = Forgotten()
            life.write()
        self._look_for_lost_ends(actions)

    def _look_for_lost_ends(self, actions: Sequence[act.Action]) -> None:
        """A replica that cuts off what is missing, or replaces it by less, has forgotten what it acknowledged."""
        life = self.life
        if not life.holes or life.forgotten is not None:
            return
        for action in actions:
            if type(action) is act.TruncateLog and any(hole.end_offset > action.end_offset for hole in life.holes):
                life.forgotten = Forgotten()
        if life.is_sent_to_snapshot and isinstance(life.part, Following):
            log, download = self.state.log, self.state.role_state.download  # type: ignore[union-attr]
            if download is not None and not download.fills and download.snapshot_id.offset < log.end_offset:
                life.forgotten = life.forgotten or Forgotten()
        if life.forgotten is not None:
            life.write()

    def failed(self, event: ev.RequestFailed, actions: Sequence[act.Action]) -> None:
        """A request has no answer."""
        election_answers.failed(self.life, event)

    def connection_lost(self, event: ev.ConnectionLost, actions: Sequence[act.Action]) -> None:
        """A connection is gone."""
        election_answers.connection_lost(self.life, event)

    def records(self, event: ev.RecordsSubmitted, actions: Sequence[act.Action]) -> None:
        """A leader may append other voters."""
        life = self.life
        if isinstance(life.part, Leading) and any(batch.is_control for batch in event.batches):
            life.look_at_log()
            leading.voters_changed(life, life.part)

    def flushed(self, event: ev.Flushed, actions: Sequence[act.Action]) -> None:
        """The disk gets on."""
        self.life.flush_waits_since_ms = None

    def machine_failed(self, event: ev.Event, actions: Sequence[act.Action]) -> None:
        """A replica that cannot serve stands no more."""
        life = self.life
        if life.machine_failed_ms is None:
            life.machine_failed_ms = life.now_ms
        self._stand_no_more()

    def healed(self, event: ev.StateHealed, actions: Sequence[act.Action]) -> None:
        """Its state is right again: it may stand."""
        self.life.machine_failed_ms, self.life.last_resorts = None, 0

    def _stand_no_more(self) -> None:
        life, part = self.life, self.life.part
        if isinstance(part, Asking) and part.role is Role.PROSPECTIVE:
            life.unattached(life.epoch, part.leader_id)
        elif isinstance(part, Asking):
            life.unattached(life.epoch + 1)

    def storage_failed(self, event: ev.StorageFailed | ev.SnapshotLost, actions: Sequence[act.Action]) -> None:
        """A replica that lacks records stands no more, and leads no more."""
        life = self.life
        had = life.holes
        life.look_at_log()
        if isinstance(event, ev.SnapshotLost) and event.holes == had:
            return
        if not event.holes:
            return
        if isinstance(life.part, Leading):
            life.resigned(())
        else:
            self._stand_no_more()

    def replaced(self, event: ev.Event, actions: Sequence[act.Action]) -> None:
        """A snapshot stands where the log did: the leader has its whole time again."""
        if isinstance(self.life.part, Following):
            election_answers.restart(self.life, self.life.part)

    def disk_space(self, event: ev.DiskSpaceChanged, actions: Sequence[act.Action]) -> None:
        """The disk is full, or is not."""
        self.life.is_full, self.life.full_since_ms = event.is_full, self.life.now_ms

    def identified(self, event: ev.PeerIdentified, actions: Sequence[act.Action]) -> None:
        """A peer has a controller on top, or not."""
        (self.life.controllers.add if event.is_controller else self.life.controllers.discard)(event.endpoint)

    def resign_requested(self, event: ev.ResignRequested, actions: Sequence[act.Action]) -> None:
        """The application wants another leader."""
        if isinstance(self.life.part, Leading) and event.epoch == self.life.epoch:
            self.life.part.resign_requested = True

    def transfer_requested(self, event: ev.TransferRequested, actions: Sequence[act.Action]) -> None:
        """The application wants this leader."""
        life, part = self.life, self.life.part
        if isinstance(part, Leading) and event.epoch == life.epoch and event.target_id in part.voters:
            part.transfer = event.target_id, life.now_ms + event.timeout_ms

    def shutdown_requested(self, event: ev.ShutdownRequested, actions: Sequence[act.Action]) -> None:
        """The host wants an end."""
        self.life.shutdown_ms = self.life.now_ms + event.timeout_ms


def _mark(action: act.Action) -> tuple[act.Action, int]:
    """Return what must agree of an action, and what is owed for epochs where that is written (scenario E17)."""
    if isinstance(action, act.PersistElection):
        return act.PersistElection(action.election, 0), action.election.epoch_debt_ms
    return act.AnnounceLeader(action.leader) if isinstance(action, act.AnnounceLeader) else action, 0


def _is_answer(answer: Any, expected: Any) -> bool:
    if isinstance(expected, election_requests.Refusal):
        return answer is not None and answer.error_code == expected and not answer.topics and not answer.node_endpoints
    if (
        expected is not None
        and answer is not None
        and getattr(expected.topics[0].partitions[0], "vote_granted", 0) is None
    ):
        said = answer.topics[0].partitions[0].vote_granted
        topic = expected.topics[0]
        row = attrs.evolve(topic.partitions[0], vote_granted=said)
        expected = attrs.evolve(expected, topics=(attrs.evolve(topic, partitions=(row,)),))
    return bool(answer == expected)


TAKEN: Final[Mapping[type, Callable[[ElectionRules, Any, Sequence[act.Action]], None]]] = {
    ev.RequestReceived: ElectionRules.request,
    ev.ResponseReceived: ElectionRules.response,
    ev.RequestFailed: ElectionRules.failed,
    ev.ConnectionLost: ElectionRules.connection_lost,
    ev.RecordsSubmitted: ElectionRules.records,
    ev.Flushed: ElectionRules.flushed,
    ev.StateMachineFailed: ElectionRules.machine_failed,
    ev.StateHealed: ElectionRules.healed,
    ev.StorageFailed: ElectionRules.storage_failed,
    ev.SnapshotLost: ElectionRules.storage_failed,
    ev.LogTruncated: ElectionRules.truncated,
    ev.SnapshotInstalled: ElectionRules.replaced,
    ev.SnapshotAdopted: ElectionRules.replaced,
    ev.DiskSpaceChanged: ElectionRules.disk_space,
    ev.PeerIdentified: ElectionRules.identified,
    ev.ResignRequested: ElectionRules.resign_requested,
    ev.TransferRequested: ElectionRules.transfer_requested,
    ev.ShutdownRequested: ElectionRules.shutdown_requested,
}
