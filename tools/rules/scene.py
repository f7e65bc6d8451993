"""The scene that the rules of one life share: the time before an event, its outcome, and the answers it waits for.

The role and its epoch, the high watermark and the end of the log are read from the core, since other rules judge them.
The rest is worked out here, for the rules of the voters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Leader
from kraftlib.types import ZERO_UUID, Endpoint, Offset, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from tools.rules.voter_sets import Seats, VotersByOffset

OTHERS: Final = -1_000_000
"""Destinations from here down are connections of their own, beside the one between two replicas."""


@attrs.define
class Heard:
    """A leader's knowledge of one replica in its epoch."""

    fetched_ms: int | None = None
    piece_ms: int = 0
    """When it asked for a piece of a snapshot, or got on."""
    offset: Offset = -1
    caught_up_ms: int | None = None
    end_then: Offset = 0
    """Where the log of the leader ended at that Fetch."""
    is_proven: bool = True
    """Whether it was this replica that fetched, and not only one that gave its id."""

    @property
    def at_ms(self) -> int | None:
        """When it asked for anything last."""
        return self.piece_ms or None if self.fetched_ms is None else max(self.fetched_ms, self.piece_ms)


@attrs.define
class Sent:
    """A request that waits for its answer."""

    destination: int
    request: Any
    sent_ms: int


class Scene:
    """One event of one life. Every rule set is told of it after the scene."""

    def __init__(self, core: Replica) -> None:
        self.core = core
        self.state = state = core.state
        self.config = state.config
        self.key: ReplicaKey = state.key
        self.voters = VotersByOffset(state.log)
        self.voters_changed = True
        self.voters_before = self.voters.latest
        self.now_ms = 0
        self.is_shutting_down = False
        """As it was before the event."""
        self.role: Any = None
        self.role_before: Any = None
        self.epoch_before = state.epoch
        self.leader_before: ReplicaId | None = None
        self.high_watermark_before: Offset | None = None
        self.end_before: Offset = 0
        self.flushed_before: Offset = 0
        self.heard: dict[ReplicaKey, Heard] = {}
        """Of the leadership that goes on."""
        self.fetched_as: ReplicaKey | None = None
        """The sender of the Fetch that the event is, if the leader takes note of it; None if not."""
        self.sent: dict[int, Sent] = {}
        self.answered: Sent | None = None
        """The request that the event answers; None also where its answer is not waited for any more."""
        self.requests: list[act.SendRequest[Any]] = []
        self.controls: list[act.SubmitControl] = []
        self.responses: dict[int, Any] = {}
        self.actions: Sequence[act.Action] = ()

    # --- questions ---------------------------------------------------------------------------------------------------

    @property
    def has_new_role(self) -> bool:
        """Whether the event has brought another role, or the same one anew."""
        return self.role is not self.role_before

    @property
    def led(self) -> bool:
        """Whether the replica led when the event came."""
        return type(self.role_before) is Leader

    @property
    def leads_on(self) -> bool:
        """Whether it leads as it did before."""
        return type(self.role) is Leader and self.role is self.role_before

    @property
    def is_voter(self) -> bool:
        """Whether the voters in force name it."""
        return self.voters.admits(self.key)

    @property
    def majority(self) -> int:
        """The least number of voters that is more than half of those in force."""
        return len(self.voters.latest) // 2 + 1

    def voter_key(self, voter_id: ReplicaId) -> ReplicaKey:
        """Return the key of a voter in force."""
        return ReplicaKey(voter_id, self.voters.latest[voter_id].directory_id)

    def place_of(self, places: frozenset[tuple[str, str, int]]) -> Endpoint | None:
        """Return where the listener is that replicas ask on."""
        wanted = self.config.listener_name.upper()
        return next((Endpoint(host, port) for name, host, port in places if name == wanted), None)

    def cluster_error(self, cluster_id: str | None) -> ErrorCode:
        """Return what a request that names this cluster is refused with."""
        own = self.state.cluster_id
        is_other = None not in (cluster_id, own) and cluster_id != own
        return ErrorCode.INCONSISTENT_CLUSTER_ID if is_other else ErrorCode.NONE

    def leader_error(self, epoch: int | None = None) -> ErrorCode:
        """Return the error for a request to the leader of `epoch` (KIP-595)."""
        if epoch is not None and epoch != self.epoch_before:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch_before else ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self.led:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if self.is_shutting_down else ErrorCode.NONE

    def awaits(self, destination: int) -> bool:
        """Whether an answer from there is awaited."""
        return any(sent.destination == destination for sent in self.sent.values())

    # --- what happens ------------------------------------------------------------------------------------------------

    def began(self, actions: Sequence[act.Action], now_ms: int) -> None:
        """The life begins."""
        self.now_ms = now_ms
        self._read(actions)

    def hear(self, event: Any, now_ms: int) -> None:
        """Take note of what is before an event."""
        state = self.state
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        self.role_before = state.role_state
        self.epoch_before = state.epoch
        self.leader_before = state.leader_id
        log = state.log
        self.high_watermark_before = state.high_watermark
        self.end_before = log.end_offset
        self.flushed_before = log.flushed_offset
        self.voters_before = self.voters.latest
        self.voters_changed = False
        kind = type(event)
        if kind in DISK_EVENTS:
            self.voters_changed = self.voters.hear(event, log.start_offset, log.end_offset)
        self.answered = None
        if kind is ev.ResponseReceived or kind is ev.RequestFailed:
            self.answered = self.sent.pop(event.correlation_id, None)

    def see(self, event: Any, actions: Sequence[act.Action]) -> None:
        """Take note of what came of it."""
        self._read(actions)
        self.fetched_as = None
        if type(event) is ev.RequestReceived and self.leads_on:
            if type(event.request) is FetchRequest:
                self._note_fetch(event)
            elif type(event.request) is FetchSnapshotRequest:
                self._note_piece(event)

    def over(self, event: Any) -> None:
        """Every rule set has been told."""
        if self.role is not self.role_before:
            self.heard = {}
        if type(event) is ev.ShutdownRequested:
            self.is_shutting_down = True

    def _read(self, actions: Sequence[act.Action]) -> None:
        state = self.state
        self.role = state.role_state
        self.actions = actions
        self.requests, self.controls, self.responses = [], [], {}
        if self.role is not self.role_before:
            self.sent = {}
        elif self.sent:
            limit_ms = self.now_ms - self.config.request_timeout_ms
            for number in [number for number, sent in self.sent.items() if sent.sent_ms <= limit_ms]:
                del self.sent[number]
        action: Any
        for action in actions:
            kind = type(action)
            if kind is act.SendResponse:
                self.responses[action.request_id] = action.response
            elif kind is act.SendRequest:
                self.requests.append(action)
                self.sent[action.correlation_id] = Sent(action.destination, action.request, self.now_ms)
            elif kind is act.SubmitControl:
                self.controls.append(action)
            elif kind is act.AppendToLog:
                if any(batch.is_control for batch in action.batches):
                    before = self.voters.latest
                    self.voters.append(action.batches)
                    self.voters_changed = True
                    self._rename(before)
            elif kind is act.TruncateLog:
                self.voters.truncate(action.end_offset)
                self.voters_changed = True
            elif kind is act.DeleteBefore:
                self.voters.forget_before(action.snapshot_id.offset)
                self.voters_changed = True

    def _rename(self, before: Seats) -> None:
        """The Fetches of a voter without a known directory still count when the log names its directory."""
        for voter_id, seat in self.voters.latest.items():
            was_unknown = voter_id in before and before[voter_id].directory_id is None
            unnamed = self.heard.pop(ReplicaKey(voter_id), None) if was_unknown and seat.directory_id else None
            if unnamed is not None:
                self.heard.setdefault(ReplicaKey(voter_id, seat.directory_id), unnamed)
        for voter_id in self.voters.latest:
            known = self.heard.get(self.voter_key(voter_id))
            if known is not None and not known.is_proven:
                del self.heard[self.voter_key(voter_id)]  # the word of another replica does not count for a voter

    def _fetcher(self, replica_id: ReplicaId, directory_id: Any) -> ReplicaKey | None:
        if replica_id < 0:
            return None
        key = ReplicaKey(replica_id, None if directory_id == ZERO_UUID else directory_id)
        return self.voter_key(replica_id) if self.voters.admits(key) else key

    def _note_fetch(self, event: ev.RequestReceived[Any]) -> None:
        answer = self.responses.get(event.request_id)
        if event.request_id in self.responses:
            partitions = [] if answer is None or answer.error_code else answer.responses[0].partitions
            if not partitions or partitions[0].error_code:
                return
            if partitions[0].diverging_epoch.epoch >= 0 or partitions[0].snapshot_id.epoch >= 0:
                return
        request = event.request
        partition = request.topics[0].partitions[0]
        key = self._fetcher(max(request.replica_id, request.replica_state.replica_id), partition.replica_directory_id)
        if key is None:
            return
        is_proven, known = self.voters.admits(key) or not event.of_observer, self.heard.get(key)
        if known is not None and known.is_proven is not is_proven:
            if known.is_proven:
                return  # the replica itself was here
            del self.heard[key]
        heard = self.heard.setdefault(key, Heard(is_proven=is_proven))
        offset, end, now_ms = partition.fetch_offset, self.end_before, self.now_ms
        if offset != heard.offset or offset >= end:
            heard.piece_ms = now_ms
        if offset >= end:
            heard.caught_up_ms = now_ms
        elif 0 < heard.end_then <= offset and heard.fetched_ms is not None:
            heard.caught_up_ms = max(heard.caught_up_ms or 0, heard.fetched_ms)
        heard.end_then, heard.fetched_ms, heard.offset = end, now_ms, offset
        self.fetched_as = key

    def _note_piece(self, event: ev.RequestReceived[Any]) -> None:
        if event.request_id in self.responses:
            return
        partition = event.request.topics[0].partitions[0]
        key = self._fetcher(event.request.replica_id, partition.replica_directory_id)
        if key is not None and self.voters.admits(key):
            self.heard.setdefault(key, Heard()).piece_ms = self.now_ms


DISK_EVENTS: Final = frozenset(
    {ev.LogTruncated, ev.SnapshotInstalled, ev.SnapshotAdopted, ev.Repaired, ev.StorageFailed}
)
"""With these the disk says what has become of the log."""
