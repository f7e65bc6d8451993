"""Fetch as a leader answers it, and what it commits (KIP-595, Fetch; KIP-630; KIP-853; KIP-1166).

| id | rule |
|---|---|
| RF10 | a Fetch is refused with the error that its first mistake asks for, and only for a mistake |
| RF11 | the answer names a snapshot, the end of the newest common epoch or neither, as the position asks for |
| RF12 | it names the leader and epoch of now, where that is reached, the high watermark and the start of the log |
| RF13 | a position that continues the log gets records from there, as much as it asks for, at once if there are any |
| RF14 | a Fetch that is held is answered when records may leave, when its time is up or the leadership, not before |
| RF15 | the high watermark is what a majority of the voters has flushed, in the own epoch, as soon as that is known |
| RF16 | many observers are told in rounds, longest waits first; a round comes 10 ms after news, then every few ms |
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Leader
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import METADATA_TOPIC_ID, ZERO_UUID, Endpoint, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from tools.rules.downstream import to_serve
from tools.rules.positions import divergence, snapshot_for
from tools.rules.rule_set import RuleSet

NEWS_DELAY_MS: Final = 2
"""An answer that has a new high watermark and nothing else waits this time for records to go with it."""

ROUND_PAUSE_MS: Final = 2
COMMIT_WAIT_MS: Final = 10
"""Observers that are told in rounds wait these times for the next round, and for the first one."""

HELD_MAX_MS: Final = 60_000
"""No Fetch is held for longer, whatever it asks for."""

ANSWERS: Final = frozenset({act.SendRecords, act.SendResponse})

MAX_BYTES: Final = 8 << 20
"""More than this goes into no answer."""

MOVES: Final = frozenset({ev.StorageFailed, ev.SnapshotAdopted, ev.SnapshotInstalled})
"""With these a log moves to what was known."""

VOTERS_TAG: Final = 10_000
"""The tagged field in which a replica says which static voters it counts."""


@attrs.define
class Held:
    """A Fetch that waits for its answer."""

    version: int
    offset: Offset
    max_bytes: int
    fetcher: ReplicaKey | None
    deadline_ms: int
    in_rounds: bool = False
    """Whether its sender is an observer that is told in rounds."""
    high_watermark: Offset = -1
    """The high watermark that its sender knows."""
    news_ms: int | None = None
    """Since when there is news for it."""


@attrs.define
class Expected:
    """The answer that a Fetch must have at once."""

    request_id: int
    version: int
    error: ErrorCode | None = None
    is_top_level: bool = False
    snapshot_id: OffsetAndEpoch | None = None
    diverging: OffsetAndEpoch | None = None
    records: Held | None = None


class FetchLeaderRules(RuleSet):
    """RF10 to RF15."""

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self._role: object = None
        self._held: dict[int, Held] = {}
        self._acknowledged: dict[ReplicaKey, Offset] = {}
        """The offset of the last Fetch in this leadership, by the name that its sender gives."""
        self._of_static: dict[ReplicaId, Offset] = {}
        """The same of static voters, whose directory is not known."""
        self._start_offset: Offset = 0
        self._high_watermark: Offset | None = None
        self._told: Offset | None = None
        """The high watermark before the event that is being handled."""
        self._expected: Expected | None = None
        self._leader: tuple[ReplicaId, int, Endpoint | None] = (-1, 0, None)
        self._now_ms = 0
        self._round_ms = 0
        """When observers were last told in a round."""

    def started(self, actions: Sequence[act.Action], now_ms: int) -> None:
        """The sole voter of a quorum leads at once."""
        self._look_at_role(actions)

    # --- what comes --------------------------------------------------------------------------------------------------

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """Work out what the answer must be, and what is committed by it."""
        kind = type(event)
        self._expected, self._told = None, self._high_watermark
        if kind is ev.RequestReceived and type(event.request) is FetchRequest:  # type: ignore[union-attr]
            self._now_ms = max(now_ms, self.state.now_ms)
            self._leader = self._leader_now()
            if self._role is not None or to_serve(self.state, event) is None:  # type: ignore[arg-type]
                self._expected = self._judge(event)  # type: ignore[arg-type]
        elif kind is ev.Flushed and self._role is not None:
            self._now_ms = max(now_ms, self.state.now_ms)

    def _leader_now(self) -> tuple[ReplicaId, int, Endpoint | None]:
        state = self.state
        leader_id = state.leader_id
        return -1 if leader_id is None else leader_id, state.epoch, state.leader_endpoint

    def _judge(self, event: ev.RequestReceived[Any]) -> Expected | None:
        """Return the answer that must come at once; None if the Fetch is to be held."""
        request: FetchRequest = event.request
        state, request_id, version = self.state, event.request_id, event.version
        error, is_top_level = self._error(request, version)
        if error is not None:
            return Expected(request_id, version, error, is_top_level)
        partition = request.topics[0].partitions[0]
        offset, epoch = partition.fetch_offset, partition.last_fetched_epoch
        snapshot_id = snapshot_for(state.log, offset, epoch)
        if snapshot_id is not None:
            return Expected(request_id, version, snapshot_id=snapshot_id)
        end = divergence(state.log, offset, epoch)
        if end is not None:
            return Expected(request_id, version, diverging=end)
        fetcher = _fetcher_of(request)
        high_watermark = self._known_high_watermark(version, partition, fetcher)
        if fetcher is not None and (self._votes(fetcher) or not event.of_observer):
            self._note(fetcher, offset)
        held = Held(version, offset, request.max_bytes, fetcher, self._now_ms + min(request.max_wait_ms, HELD_MAX_MS))
        held.in_rounds, kept_up = self._waits_for_rounds(fetcher, offset)
        held.high_watermark = min(high_watermark, -1 if self._high_watermark is None else self._high_watermark)
        waits = held.in_rounds and kept_up and request.max_wait_ms > 0
        if offset < state.log.end_offset and self._may_leave(fetcher) and not waits:
            return Expected(request_id, version, records=held)
        if request.max_wait_ms == 0:
            return Expected(request_id, version)
        has_news = self._high_watermark is not None and high_watermark < self._high_watermark
        if has_news and not held.in_rounds:
            held.deadline_ms = self._now_ms + min(request.max_wait_ms, NEWS_DELAY_MS)
        self._held[request_id] = held
        return None

    def _known_high_watermark(self, version: int, partition: Any, fetcher: ReplicaKey | None) -> Offset:
        """Return what a Fetch says; below 18, one that follows records has not heard of their commit."""
        role, said, offset = self._role, int(partition.high_watermark), int(partition.fetch_offset)
        if version >= 18 or fetcher is None or not isinstance(role, Leader):
            return said
        known = role.progress.get(fetcher.id) if self._votes(fetcher) else role.observers.get(fetcher)
        return said if known is not None and known.end_offset == offset else offset - 1

    def _waits_for_rounds(self, fetcher: ReplicaKey | None, offset: Offset) -> tuple[bool, bool]:
        """Return whether this is one of many observers, and whether it has all that there was the last time."""
        role = self._role
        if fetcher is None or self._votes(fetcher) or not isinstance(role, Leader):
            return False, False
        known = role.observers.get(fetcher)
        many = len(role.observers) + (known is None) > self.state.config.observers_at_once
        return many, known is not None and offset >= known.leader_end_offset

    def _error(self, request: FetchRequest, version: int) -> tuple[ErrorCode | None, bool]:
        state = self.state
        ours = state.cluster_id
        if state.config.strict and request.cluster_id is None:
            return ErrorCode.NONE, True  # the connection is closed
        if request.cluster_id is not None and ours is not None and request.cluster_id != ours:
            return ErrorCode.INCONSISTENT_CLUSTER_ID, True
        said = next((data for tag, data in request.unknown_tagged_fields if tag == VOTERS_TAG), b"")
        if said and state.log.voters.latest_offset is None:
            ids = sorted(voter.key.id for voter in state.voters)
            if ids and said != struct.pack(f">{len(ids)}i", *ids):
                return ErrorCode.INCONSISTENT_VOTER_SET, True
        topics = request.topics
        is_ours = len(topics) == 1 and topics[0].topic_id == METADATA_TOPIC_ID
        if version < 13 or not is_ours or [partition.partition for partition in topics[0].partitions] != [0]:
            return ErrorCode.INVALID_REQUEST, True
        partition = topics[0].partitions[0]
        asked, epoch = partition.current_leader_epoch, state.epoch
        if min(request.max_wait_ms, partition.fetch_offset, partition.last_fetched_epoch) < 0:
            return ErrorCode.INVALID_REQUEST, False
        if partition.last_fetched_epoch > asked:
            return ErrorCode.INVALID_REQUEST, False
        if asked != epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if asked < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH, False
        if self._role is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, False
        if state.shutdown_deadline_ms is not None:
            return ErrorCode.BROKER_NOT_AVAILABLE, False
        if max(request.replica_id, request.replica_state.replica_id) == state.key.id:
            return ErrorCode.UNKNOWN_SERVER_ERROR, False
        return None, False

    def _may_leave(self, fetcher: ReplicaKey | None) -> bool:
        """Whether records may leave to this replica: an uncommitted change of the voters goes to voters only."""
        state = self.state
        changed_at = state.log.voters.latest_offset
        committed = max(state.committed_offset, self._high_watermark or 0)
        return changed_at is None or changed_at < committed or fetcher is None or self._votes(fetcher)

    def _votes(self, key: ReplicaKey) -> bool:
        return self._seat(key) is not None

    def _seat(self, key: ReplicaKey) -> ReplicaKey | None:
        """Return by which key a replica is a voter."""
        for voter in self.state.voters:
            seat = voter.key
            if seat.id == key.id and (seat.directory_id is None or seat.directory_id == key.directory_id):
                return seat
        return None

    # --- what is committed -------------------------------------------------------------------------------------------

    def _note(self, key: ReplicaKey, offset: Offset) -> None:
        """Everything before `offset` is flushed at this replica."""
        known = self._acknowledged.get(key, -1)
        self._acknowledged[key] = offset
        seat = self._seat(key)
        if seat is None:
            return
        if seat.directory_id is None:
            known = self._of_static.get(key.id, -1)
            self._of_static[key.id] = offset
        if known != offset:
            self._count()

    def _count(self) -> None:
        """Advance the high watermark to what more than half of the voters have."""
        state = self.state
        ends: list[Offset] = []
        for voter in state.voters:
            key = voter.key
            if key.id == state.key.id:
                is_us = key.directory_id in (None, state.key.directory_id)
                ends.append(state.log.flushed_offset if is_us else -1)
            elif key.directory_id is None:
                ends.append(self._of_static.get(key.id, -1))
            else:
                ends.append(self._acknowledged.get(key, -1))
        reached = sorted(ends, reverse=True)[len(ends) // 2] if ends else -1
        known = self._high_watermark
        if reached > self._start_offset and (known is None or reached > known):
            self._high_watermark = reached
            for held in self._held.values():
                if not held.in_rounds:
                    held.deadline_ms = min(held.deadline_ms, self._now_ms + NEWS_DELAY_MS)

    # --- what the core does ------------------------------------------------------------------------------------------

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """Compare."""
        actions = list(_each(actions))
        led = self._role
        if led is not None:
            if type(event) is ev.Flushed:
                self._count()
            self._look_at_commits(event, actions)
        if self._expected is not None:
            self._look_at_answer(self._expected, actions)
        if led is not None and (self._held or self.state.role_state is not led):
            before = dict(self._held)
            self._look_at_held(event, actions)
            self._look_at_rounds(before)
        self._look_at_role(actions)

    def _look_at_role(self, actions: Sequence[act.Action]) -> None:
        role = self.state.role_state
        if role is self._role:
            return
        self._held, self._acknowledged, self._of_static = {}, {}, {}
        self._role = role if isinstance(role, Leader) else None
        if self._role is not None:
            begins = [action.start_offset for action in actions if isinstance(action, act.BeginEpoch)]
            self._start_offset = begins[-1] if begins else self.state.log.end_offset
            self._high_watermark = None

    def _look_at_commits(self, event: ev.Event, actions: Sequence[act.Action]) -> None:
        wanted, state = self._high_watermark, self.state
        if type(event) in MOVES:
            return
        advanced = [action.high_watermark for action in actions if type(action) is act.AdvanceHighWatermark]
        if state.role_state is self._role and state.high_watermark != wanted:
            text = f"the high watermark of epoch {state.epoch} is {state.high_watermark}, the voters have {wanted}"
            raise BrokenRuleError("RF15", f"{text}: {self._acknowledged}, {state.log.flushed_offset} flushed here")
        if advanced != ([] if wanted == self._told else [wanted]):
            raise BrokenRuleError("RF15", f"{advanced} is told, the voters have {wanted}, known was {self._told}")

    def _look_at_answer(self, expected: Expected, actions: Sequence[act.Action]) -> None:
        answer = _answer_to(expected.request_id, actions)
        if answer is None:
            raise BrokenRuleError("RF10", f"a Fetch is not answered: {expected} at {self._where()}")
        if expected.is_top_level:
            self._look_at_top_level(expected, answer)
            return
        if expected.records is not None:
            self._look_at_records(expected.records, answer)
            return
        if isinstance(answer, act.SendRecords):
            raise BrokenRuleError("RF13", f"records from {answer.start_offset} are sent, must be: {expected}")
        self._look_at_fields(answer.response, expected)

    def _look_at_top_level(self, expected: Expected, answer: Any) -> None:
        if expected.error is ErrorCode.NONE:
            if answer.response is not None:
                raise BrokenRuleError("RF10", "a Fetch without a cluster id is answered, and we are strict")
            return
        response = answer.response
        if response is None or response.error_code != expected.error or response.responses:
            raise BrokenRuleError("RF10", f"a Fetch is answered {response}, and not refused with {expected.error}")

    def _look_at_records(self, held: Held, answer: Any) -> None:
        if not isinstance(answer, act.SendRecords) or answer.start_offset != held.offset:
            raise BrokenRuleError("RF13", f"a Fetch from {held.offset} is answered {answer}, {self._where()}")
        if answer.max_bytes != min(max(held.max_bytes, 1), MAX_BYTES):
            raise BrokenRuleError("RF13", f"{answer.max_bytes} bytes at most are sent of {held.max_bytes} asked for")
        self._look_at_fields(answer.response, Expected(answer.request_id, held.version))

    def _look_at_fields(self, response: Any, expected: Expected) -> None:
        """RF11 and RF12: every field of the one partition."""
        state, error = self.state, expected.error or ErrorCode.NONE
        partition = response.responses[0].partitions[0] if response is not None and response.responses else None
        if partition is None or response.error_code != ErrorCode.NONE or partition.error_code != error:
            raise BrokenRuleError("RF10", f"a Fetch is answered {response}, the error must be {error.name}")
        named, told = partition.snapshot_id, partition.diverging_epoch
        snapshot_id = None if named.end_offset < 0 else OffsetAndEpoch(offset=named.end_offset, epoch=named.epoch)
        diverging = None if told.epoch < 0 else OffsetAndEpoch(offset=told.end_offset, epoch=told.epoch)
        if (snapshot_id, diverging) != (expected.snapshot_id, expected.diverging):
            text = f"a Fetch is told snapshot {snapshot_id}, divergence {diverging}; must be {expected.snapshot_id}"
            raise BrokenRuleError("RF11", f"{text} and {expected.diverging}, {self._where()}")
        leader_id, epoch, place = self._leader
        high_watermark = self._high_watermark if error is ErrorCode.NONE else None
        ours = (leader_id, epoch, -1 if high_watermark is None else high_watermark, state.log.start_offset)
        leader = partition.current_leader
        theirs = (leader.leader_id, leader.leader_epoch, partition.high_watermark, partition.log_start_offset)
        nodes = [(node.node_id, node.host, node.port) for node in response.node_endpoints]
        places = [] if place is None or expected.version < 17 else [(leader_id, place.host, place.port)]
        if ours != theirs or nodes != places or response.responses[0].topic_id != METADATA_TOPIC_ID:
            text = f"a Fetch is told leader, epoch, high watermark, start {theirs} at {nodes}"
            raise BrokenRuleError("RF12", f"{text}; must be {ours} at {places}")

    def _where(self) -> str:
        log = self.state.log
        return (
            f"the log is [{log.start_offset}, {log.end_offset}), epochs {log.epoch_starts}, snapshots {log.snapshots}"
        )

    # --- what is held ------------------------------------------------------------------------------------------------

    def _look_at_held(self, event: ev.Event, actions: Sequence[act.Action]) -> None:
        state, log = self.state, self.state.log
        leads = state.role_state is self._role
        for each in self._held.values():
            if each.in_rounds and each.fetcher is not None and self._votes(each.fetcher):
                each.in_rounds, each.deadline_ms = False, min(each.deadline_ms, state.now_ms + NEWS_DELAY_MS)
        for action in actions:
            if type(action) not in ANSWERS:
                continue
            held = self._held.pop(action.request_id, None)  # type: ignore[union-attr]
            if held is not None:
                self._look_at_late_answer(held, action)
        if not leads and self._held:
            raise BrokenRuleError("RF14", f"the leadership is over, and Fetches are not answered: {self._held}")
        has_records = type(event) in (ev.RecordsSubmitted, ev.Flushed)
        for held in self._held.values():
            if held.deadline_ms <= state.now_ms:
                raise BrokenRuleError("RF14", f"{held} is not answered at {state.now_ms}")
            if has_records and held.offset < log.end_offset and self._may_leave(held.fetcher) and not held.in_rounds:
                raise BrokenRuleError("RF14", f"{held} has no answer, and records may leave: {self._where()}")

    def _look_at_late_answer(self, held: Held, answer: Any) -> None:
        state, log = self.state, self.state.log
        if isinstance(answer, act.SendRecords):
            if not held.offset < log.end_offset or held.offset < log.start_offset or not self._may_leave(held.fetcher):
                raise BrokenRuleError("RF14", f"records are sent to {held}, {self._where()}")
            self._leader = self._leader_of_then()
            self._look_at_records(held, answer)
            return
        self._leader = self._leader_of_then()
        partition = answer.response.responses[0].partitions[0]
        if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and state.role_state is not self._role:
            return
        is_due = held.deadline_ms <= state.now_ms or (held.in_rounds and held.high_watermark < partition.high_watermark)
        if not is_due and not held.offset < log.start_offset:
            raise BrokenRuleError("RF14", f"{held} is answered without records at {state.now_ms}: {answer.response}")
        if log.start_offset <= held.offset < log.end_offset and self._may_leave(held.fetcher):
            raise BrokenRuleError("RF14", f"{held} is answered without records, which may leave: {self._where()}")
        self._look_at_fields(answer.response, Expected(answer.request_id, held.version))

    def _look_at_rounds(self, before: dict[int, Held]) -> None:
        """RF16: compare whom of these that were held, longest first, a round has told."""
        now_ms, waiting, told, late = self.state.now_ms, list[Held](), list[Held](), 0
        for number, held in before.items():
            if not held.in_rounds or not self._has_news(held):
                held.news_ms = None  # an uncommitted change of the voters keeps records back
                continue
            held.news_ms = now_ms if held.news_ms is None else held.news_ms
            if number in self._held:
                waiting.append(held)
            elif held.deadline_ms <= now_ms:
                late += 1
            else:
                if waiting:
                    raise BrokenRuleError("RF16", f"{held} is told before {waiting[0]}, which has waited longer")
                told.append(held)
        if told or late:
            if told and waiting and late + len(told) < self.state.config.observers_at_once:
                raise BrokenRuleError("RF16", f"{len(told)} observers are told at {now_ms}, and {len(waiting)} wait")
            self._round_ms = now_ms
        # A round that is late puts the next one off by as much, up to the time in which all have their turn.
        pause_ms = ROUND_PAUSE_MS + self.state.config.observer_round_ms
        for held in waiting:
            due_ms = max((held.news_ms or 0) + COMMIT_WAIT_MS, self._round_ms + pause_ms)
            if due_ms <= now_ms:
                raise BrokenRuleError("RF16", f"{held} was to be told at {due_ms}, it is {now_ms}: {self._where()}")

    def _has_news(self, held: Held) -> bool:
        may_have = held.offset < self.state.log.end_offset and self._may_leave(held.fetcher)
        return may_have or held.high_watermark < (-1 if self._high_watermark is None else self._high_watermark)

    def _leader_of_then(self) -> tuple[ReplicaId, int, Endpoint | None]:
        state = self.state
        if state.role_state is self._role:
            return self._leader_now()
        return state.key.id, self._leader[1], state.endpoints.get(state.config.listener_name.upper())


def _fetcher_of(request: FetchRequest) -> ReplicaKey | None:
    """Return in whose name a Fetch is."""
    number = max(request.replica_id, request.replica_state.replica_id)
    directory_id = request.topics[0].partitions[0].replica_directory_id
    return None if number < 0 else ReplicaKey(number, None if directory_id == ZERO_UUID else directory_id)


def _answer_to(request_id: int, actions: Sequence[act.Action]) -> Any:
    for action in actions:
        if type(action) in ANSWERS and action.request_id == request_id:  # type: ignore[union-attr]
            return action
    return None


def _each(actions: Sequence[act.Action]) -> Iterator[act.Action]:
    """Yield the actions, an answer to many observers as one to each of them."""
    for action in actions:
        if type(action) is not act.AnswerObservers:
            yield action
            continue
        for number in action.request_ids:
            if action.start_offset is None:
                yield act.SendResponse(number, action.response)
            else:
                yield act.SendRecords(number, action.response, action.start_offset, action.max_bytes)
