"""The answer to a Fetch, and its effect on the follower (KIP-595, Fetch; KIP-320; KIP-630; KIP-853).

| id | rule |
|---|---|
| RF24 | an answer counts for the log if, and only if, it is of this leader and epoch and for what would be asked now |
| RF25 | of an answer that counts all that continues the log is appended, and nothing else ever is |
| RF26 | the log is cut to the end that it has in common with its leader's, never below what is committed |
| RF27 | a follower's high watermark is what its leader says, in any answer, as far as its log goes, and never falls |
| RF28 | after a request in vain a replica backs off from its receiver, for a bounded time |
| RF47 | an answer that counts and is of no use to the log is counted as a mistake |
| RF42 | if acknowledged records are dropped with a hole, the replica first makes durable that it gives no vote |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Leader, Unattached
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import METADATA_TOPIC_ID, Epoch, Offset, OffsetAndEpoch, OffsetRange
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from tools.rules.downloads import Downloads
from tools.rules.fetch_asking import Asking, Question
from tools.rules.positions import cut, end_of, epoch_before, may_stand_in, without_half_a_hole
from tools.rules.received import continuing
from tools.rules.repair import Repair
from tools.rules.rule_set import RuleSet
from tools.rules.state_digests import LANE
from tools.rules.upstreams import has_upstreams, source

FETCHING = frozenset({Follower, Unattached})
"""Roles that send a Fetch."""

LOG_ACTIONS = frozenset({act.BeginEpoch, act.AppendToLog, act.WriteRepair, act.TruncateLog, act.AdvanceHighWatermark})
"""Actions that say what becomes of the log."""

PAUSE_MAX_MS = 500
"""The longest back-off from a replica, unless a longer pause is configured."""


@attrs.define
class Asked:
    """A Fetch that is on its way."""

    destination: int
    question: Question | None
    """None, if it asks who leads."""
    sent_ms: int


@attrs.define
class Outcome:
    """The effect on the log of the event that is being handled."""

    appends: list[tuple[Offset, Offset, Epoch, int]] = attrs.field(factory=list)
    """Base and end offset, epoch and size of each batch."""
    repairs: list[tuple[Offset, Offset, Epoch, int]] = attrs.field(factory=list)
    cuts_to: Offset | None = None
    advances_to: Offset | None = None
    forgets: bool = False
    """Whether acknowledged records go, and what tells so: the replica gives no vote until they are back."""
    is_of_use: bool = True
    goes_on: bool = False
    """Whether the log may have grown to what was learned to be committed."""

    @property
    def has_news(self) -> bool:
        """Whether anything follows from it."""
        return bool(self.appends or self.repairs or self.forgets) or (self.cuts_to, self.advances_to) != (None, None)


MISTAKE: Final = Outcome(is_of_use=False)
"""The effect of what no sound leader says."""


class FetchFollowerRules(RuleSet):
    """RF20 to RF28, RF32 to RF37, RF40, RF41 and RF47."""

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self._role: object = None
        self._asked: dict[int, Asked] = {}
        self._repair = Repair()
        self._asking = Asking(core, self._repair)
        self._downloads = Downloads(core)
        self._holes: list[OffsetRange] = []
        self._was_amnesiac = False
        self._outcome: Outcome | None = None
        """None, if nothing that this life has heard of the leader may change the log now."""
        self._answered: Asked | None = None
        self._committed: Offset = core.state.committed_offset
        self._high_watermark: Offset | None = None
        self._reads: dict[int, int] = {}
        """When the ReadBarriers left that are on their way, in ms."""
        self._compared: dict[int, int] = {}
        """When the StateDigests left that ask the leader for a snapshot, in ms."""
        self._learned: OffsetAndEpoch | None = None
        """The end of what is committed, as another answer than that to a Fetch has said."""
        self._has_learned = False
        self._now_ms = 0
        self._mistakes = 0
        """The number of mistakes of peers that were counted before the event."""

    def started(self, actions: Sequence[act.Action], now_ms: int) -> None:
        """It may ask at once. All that a snapshot covers, the newest one too, is committed."""
        log = self.state.log
        covered = max([log.start_offset, *(kept.offset for kept in log.snapshots)])
        if self.state.committed_offset != covered:
            text = f"{self.state.committed_offset} is taken for committed at the start, and {covered} is"
            raise BrokenRuleError("RF27", text)
        self._downloads.follow(actions)
        self._end_step(actions)

    # --- what comes --------------------------------------------------------------------------------------------------

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """Work out what the event means to the log."""
        state, kind = self.state, type(event)
        self._answered, self._outcome, self._now_ms = None, None, now_ms
        self._high_watermark, self._committed = state.high_watermark, state.committed_offset
        self._holes, self._was_amnesiac = state.log.holes, state.amnesia is not None
        self._downloads.hear(event, now_ms)
        self._has_learned = self._learn(event)
        if kind is ev.ResponseReceived:
            self._answered = asked = self._asked.pop(event.correlation_id, None)  # type: ignore[union-attr]
            if asked is not None:
                self._outcome = self._judge(asked, event.response)  # type: ignore[union-attr]
                if self._outcome is MISTAKE:
                    self._mistakes = sum(state.refused.values())
            self._look_for_offer(event)  # type: ignore[arg-type]
        elif kind is ev.RequestFailed:
            self._answered = self._asked.pop(event.correlation_id, None)  # type: ignore[union-attr]
            self._compared.pop(event.correlation_id, None)  # type: ignore[union-attr]
        elif kind is ev.LogTruncated:
            self._asking.is_truncating = False
            self._outcome = self._cut_again(event.end_offset)  # type: ignore[union-attr]
        else:
            self._repair.hear(state, event)
            if kind is ev.SnapshotInstalled:
                offset = event.snapshot_id.offset  # type: ignore[union-attr]
                self._outcome = Outcome(advances_to=self._replaced(offset, offset))
            elif kind is ev.SnapshotAdopted:
                self._outcome = Outcome(advances_to=self._adopted(event.snapshot_id.offset))  # type: ignore[union-attr]
            elif kind is ev.StorageFailed and event.begins_at is not None and not event.holes:  # type: ignore[union-attr]
                known = state.high_watermark
                self._outcome = Outcome(advances_to=None if known is None or known > state.log.end_offset else known)

    def _look_for_offer(self, event: ev.ResponseReceived[Any]) -> None:
        """A replica whose state is wrong loads what the leader offers, unless that is from before it was found so."""
        quarantine = self.state.digests.quarantine
        if self._compared.pop(event.correlation_id, None) is None or quarantine is None:
            return
        answer = event.response
        offered = OffsetAndEpoch(offset=answer.snapshot_id.end_offset, epoch=answer.snapshot_id.epoch)
        if answer.error_code == ErrorCode.NONE and offered.offset >= quarantine.offset:
            self._downloads.heal(offered)

    def _learn(self, event: ev.Event) -> bool:
        """Take note of what an answer other than that to a Fetch says to be committed; whether one was heard now."""
        kind, end = type(event), None
        if kind is ev.CommitLearned:
            end = event.end  # type: ignore[union-attr]
        elif kind is ev.ResponseReceived and self._reads.pop(event.correlation_id, None) is not None:  # type: ignore[union-attr]
            answer = event.response  # type: ignore[union-attr]
            if answer.error_code == ErrorCode.NONE and answer.offset >= 0:
                end = OffsetAndEpoch(offset=answer.offset, epoch=answer.leader_epoch)
        elif kind is ev.RequestFailed:
            self._reads.pop(event.correlation_id, None)  # type: ignore[union-attr]
        if end is None:
            return False
        if self._learned is None or end.offset > self._learned.offset:
            self._learned = end
        return True

    def _learned_now(self, known: Offset | None) -> Offset | None:
        """Return the high watermark that was learned, once a follower's log, which is whole, has that very record."""
        state, end = self.state, self._learned
        looks = self._has_learned or (self._outcome is not None and self._outcome.goes_on)
        if not looks or end is None or not isinstance(self._role, Follower):
            return None
        if known is not None and known >= end.offset:
            self._learned = None  # an own leadership begins without a high watermark, and this is not told again
            return None
        is_here = self._committed <= end.offset <= state.log.end_offset
        is_whole = not self._asking.is_truncating and not state.log.holes
        if not is_here or not is_whole or epoch_before(state.log, end.offset) != end.epoch:
            return None
        self._learned = None
        return end.offset

    def _replaced(self, offset: Offset, end_offset: Offset) -> Offset | None:
        """A snapshot has come: all that is committed is told, once the log reaches so far."""
        self._committed = max(self._committed, offset)
        return self._committed if self._committed <= end_offset else None

    def _adopted(self, offset: Offset) -> Offset | None:
        known, end_offset = self._high_watermark, self.state.log.end_offset
        if known is not None and offset <= known <= end_offset:
            return known
        return self._replaced(offset, end_offset)

    def _judge(self, asked: Asked, response: FetchResponse) -> Outcome | None:
        """Return what an answer does to the log; None if it does not count."""
        state = self.state
        role, question = state.role_state, asked.question
        partition = _partition_of(response)
        if (
            question is None
            or partition is None
            or not isinstance(role, Follower)
            or question != self._asking.question(role)
        ):
            return None
        leader = partition.current_leader
        named = partition.error_code, leader.leader_epoch, leader.leader_id
        if named != (ErrorCode.NONE, state.epoch, role.leader_id):
            return None
        return self._outcome_of(partition, None if asked.destination == role.leader_id else asked.destination)

    def _outcome_of(self, partition: Any, source_id: int | None) -> Outcome:
        state, log = self.state, self.state.log
        diverging, snapshot, records = partition.diverging_epoch, partition.snapshot_id, partition.records or b""
        if diverging.epoch >= 0:
            end_offset = cut(log, OffsetAndEpoch(epoch=diverging.epoch, offset=diverging.end_offset))
            is_allowed = max(self._committed, log.start_offset) <= end_offset < log.end_offset
            return self._cut(without_half_a_hole(log, end_offset)) if is_allowed else MISTAKE
        if snapshot.epoch >= 0 or snapshot.end_offset >= 0:
            return self._begin_download(snapshot.end_offset, snapshot.epoch, source_id)
        if state.disk_full and len(records):
            return Outcome(is_of_use=False)
        if log.holes:
            return self._repairs(records)
        batches = continuing(state, records, end_of(log), log.voters)
        if len(records) and not batches:
            return MISTAKE
        if has_upstreams(state, self._now_ms):
            batches = [batch for batch in batches if batch.end_offset <= partition.high_watermark]
        if not self._downloads.heals:
            self._downloads.drop()
        end_offset = batches[-1].end_offset if batches else log.end_offset
        reached, known = min(partition.high_watermark, end_offset), self._high_watermark
        # A log that has lost what was committed ends below what it has told, and tells it again when that is back.
        is_news = reached >= self._committed and (known is None or reached > known or log.end_offset < known)
        return Outcome(_places(batches), advances_to=reached if is_news else None, goes_on=True)

    def _cut(self, end_offset: Offset) -> Outcome:
        is_lost = any(hole.end_offset > end_offset for hole in self.state.log.holes)
        return Outcome(cuts_to=end_offset, forgets=is_lost)

    def _cut_again(self, end_offset: Offset) -> Outcome | None:
        """A whole batch went, and with it all that stood behind a hole."""
        log = self.state.log
        reaches = without_half_a_hole(log, end_offset) if end_offset < log.end_offset else end_offset
        return self._cut(reaches) if reaches < end_offset else None

    def _begin_download(self, end_offset: Offset, epoch: Epoch, source_id: int | None) -> Outcome:
        state = self.state
        snapshot_id = OffsetAndEpoch(offset=end_offset, epoch=epoch)
        fills = self._repair.now(state.epoch) is not None and may_stand_in(state.log, snapshot_id)
        is_old = end_offset < min(self._committed, state.log.end_offset) and not fills
        if end_offset < 1 or not 0 <= epoch <= state.epoch or is_old:
            return MISTAKE
        self._downloads.begin(snapshot_id, fills=fills, source=source_id)
        return Outcome(forgets=not fills and bool(state.log.holes) and end_offset < state.log.end_offset)

    def _repairs(self, records: Any) -> Outcome:
        state = self.state
        filled = self._repair.now(state.epoch)
        if filled is None:
            self._repair.begin(state)
            return Outcome()
        usable = self._repair.usable(state, continuing(state, records, filled.position, None))
        return Outcome(repairs=_places(usable), is_of_use=bool(usable))

    # --- what is asked -----------------------------------------------------------------------------------------------

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """Compare."""
        state = self.state
        if self._outcome is not None or self._has_learned or (actions and not self._is_quiet(actions)):
            self._look_at_log(event, actions, was_leader=type(self._role) is Leader)
        if not self._repair.is_idle or state.filling is not None:
            self._repair.begins_later(state, actions, self._holes)
            self._repair.follow(state, actions)
        self._downloads.follow(actions)
        if self._outcome is MISTAKE and sum(state.refused.values()) == self._mistakes:
            raise BrokenRuleError("RF47", f"{event} is of no use to the log, and is not counted")
        if self._answered is not None and self.state.role_state is self._role:
            self._look_at_pause(self._answered, event, actions)
        is_refused = type(event) in (ev.SnapshotRefused, ev.RepairRefused)
        if is_refused and isinstance(self._role, Follower) and state.role_state is self._role:
            self._is_left_alone(self._role.leader_id, state.now_ms + state.config.retry_backoff_ms, event)
        self._end_step(actions)

    def _is_quiet(self, actions: Sequence[act.Action]) -> bool:
        """Whether nothing is done to the log, and nothing else is known to be committed."""
        if not LOG_ACTIONS.isdisjoint(map(type, actions)):
            return False
        known = self._high_watermark
        is_known = self.state.high_watermark == known and self.state.committed_offset == max(
            self._committed, known or 0
        )
        return is_known or type(self._role) is Leader

    def _look_at_log(self, event: ev.Event, actions: Sequence[act.Action], *, was_leader: bool) -> None:
        outcome = self._outcome or Outcome()
        appends: list[Any] = []
        repairs: list[Any] = []
        cuts: list[Offset] = []
        advances: list[Offset] = []
        is_elected = False
        for action in actions:
            kind = type(action)
            if kind is act.BeginEpoch:
                is_elected = True
            elif kind is act.AppendToLog and not is_elected and type(event) is not ev.RecordsSubmitted:
                appends += _places(action.batches)  # type: ignore[union-attr]
            elif kind is act.WriteRepair:
                repairs += _places(action.batches)  # type: ignore[union-attr]
            elif kind is act.TruncateLog:
                cuts.append(action.end_offset)  # type: ignore[union-attr, arg-type]
                self._asking.is_truncating = True
            elif kind is act.AdvanceHighWatermark:
                advances.append(action.high_watermark)  # type: ignore[union-attr]
        if appends != outcome.appends:
            raise BrokenRuleError(
                "RF25", f"{appends} is appended, must be {outcome.appends} behind {end_of(self.state.log)}"
            )
        if repairs != outcome.repairs:
            raise BrokenRuleError(
                "RF41", f"{repairs} is written into the hole, must be {outcome.repairs}: {self._holes}"
            )
        if cuts != ([] if outcome.cuts_to is None else [outcome.cuts_to]):
            text = f"the log is cut to {cuts}, must be {outcome.cuts_to}: {self._committed} is committed"
            raise BrokenRuleError("RF26", text)
        if outcome.forgets and not self._has_forgotten(actions):
            raise BrokenRuleError("RF42", f"{self._holes} are given up, and it would vote on")
        if was_leader and self._outcome is None:
            return
        wanted = [] if outcome.advances_to is None else [outcome.advances_to]
        known = self._high_watermark if outcome.advances_to is None else outcome.advances_to
        if (learned := self._learned_now(known)) is not None:
            wanted, known = [*wanted, learned], learned
        if advances != wanted or (not is_elected and self.state.high_watermark != known):
            text = f"the high watermark is {self.state.high_watermark}, told {advances}, must be {known}, {wanted}"
            raise BrokenRuleError("RF27", f"{text}; {self._committed} was committed")
        committed = max(self._committed, known or 0)
        if self.state.committed_offset != committed:
            raise BrokenRuleError("RF27", f"{self.state.committed_offset} is taken for committed, and {committed} is")

    def _has_forgotten(self, actions: Sequence[act.Action]) -> bool:
        """Whether it is durable, before the log is cut, that this replica gives no vote."""
        for action in actions:
            if type(action) is act.PersistElection and action.election.amnesiac:
                return True
            if type(action) is act.TruncateLog:
                break
        return self._was_amnesiac

    def _goes_on(self, actions: Sequence[act.Action]) -> bool:
        """Whether a download is under way, or has just become needless."""
        return self._downloads.is_active or any(type(action) is act.DropSnapshotDownload for action in actions)

    def _is_left_alone(self, destination: int, until_ms: int, event: ev.Event) -> None:
        # An upstream that was left meanwhile rests far longer (RF43, RF44).
        rests_until_ms = self.state.upstreams.resting_until_ms.get(destination, 0)
        if rests_until_ms < until_ms and not self.state.connections.is_backing_off(destination, until_ms - 1):
            raise BrokenRuleError("RF28", f"{destination} is asked again at once after {event}")

    def _look_at_pause(self, answered: Asked, event: ev.Event, actions: Sequence[act.Action]) -> None:
        """RF28: a replica that was of no use is not asked again at once."""
        state, outcome = self.state, self._outcome
        pause_ms, connections = state.config.retry_backoff_ms, state.connections
        at_once = connections.is_ready(answered.destination, state.now_ms)
        if (outcome is None or not outcome.is_of_use) and pause_ms:
            self._is_left_alone(answered.destination, state.now_ms + pause_ms, event)
        elif outcome is not None and connections.failures(answered.destination):
            raise BrokenRuleError("RF28", f"{answered.destination} has answered, and counts as failed")
        elif outcome is not None and not outcome.has_news and not self._goes_on(actions):
            if any(type(action) is act.AdvanceHighWatermark for action in actions):
                return  # records that were learned of before are there now, which happens once for each advance
            wanted = source(state)
            if answered.destination != (state.leader_id if wanted is None else wanted):
                return  # another upstream is asked next, or the leader
            # A leader that holds no Fetch must not be asked as fast as it answers.
            until_ms = answered.sent_ms + min(pause_ms, state.config.fetch_max_wait_ms)
            self._is_left_alone(answered.destination, until_ms, event)
        longest_ms = max(2 * pause_ms, PAUSE_MAX_MS)
        if not at_once and connections.is_backing_off(answered.destination, state.now_ms + longest_ms):
            raise BrokenRuleError("RF28", f"{answered.destination} is left alone for more than {longest_ms} ms")

    def _end_step(self, actions: Sequence[act.Action]) -> None:
        state = self.state
        role = state.role_state
        if role is not self._role:
            self._role = role
            self._asked.clear()
            self._reads.clear()
            self._compared.clear()
        late_ms = state.now_ms - state.config.request_timeout_ms
        if self._asked:
            for correlation_id in [number for number, asked in self._asked.items() if asked.sent_ms <= late_ms]:
                del self._asked[correlation_id]
        if self._reads:
            self._reads = {number: sent_ms for number, sent_ms in self._reads.items() if sent_ms > late_ms}
        if self._compared:
            self._compared = {number: sent_ms for number, sent_ms in self._compared.items() if sent_ms > late_ms}
        for action in actions:
            if type(action) is act.SendRequest and type(action.request) is FetchRequest:
                question = self._asking.look_at_fetch(action)
                self._is_remembered(action.correlation_id, question)
                self._asked[action.correlation_id] = Asked(action.destination, question, state.now_ms)
            elif type(action) is act.SendRequest and type(action.request) is ReadBarrierRequest:
                self._reads[action.correlation_id] = state.now_ms
            elif type(action) is act.SendRequest and LANE - action.destination == state.leader_id:
                self._compared[action.correlation_id] = state.now_ms
        if state.learned_commit != self._learned:
            raise BrokenRuleError("RF27", f"{state.learned_commit} is learned to be committed, and {self._learned} was")
        if type(role) in FETCHING and state.shutdown_deadline_ms is None:
            self._asking.look_at_silence(role)  # type: ignore[arg-type]

    def _is_remembered(self, correlation_id: int, question: Question | None) -> None:
        """RF24: the question is remembered as it was asked; an answer to any other one does not count."""
        kept = self.state.connections.requests[correlation_id].question
        if (None if kept is None else tuple(kept)) != (
            None if question is None else attrs.astuple(question, recurse=False)
        ):
            raise BrokenRuleError("RF24", f"a Fetch asks {question}, and is remembered as {kept}")


def _partition_of(response: FetchResponse) -> Any:
    """Return the one partition of an answer; None if it has not exactly this one."""
    topics = response.responses
    if response.error_code != ErrorCode.NONE or len(topics) != 1 or topics[0].topic_id != METADATA_TOPIC_ID:
        return None
    partitions = topics[0].partitions
    return partitions[0] if [partition.partition_index for partition in partitions] == [0] else None


def _places(batches: Sequence[Any]) -> list[tuple[Offset, Offset, Epoch, int]]:
    return [(batch.base_offset, batch.end_offset, batch.epoch, len(batch.data)) for batch in batches]
