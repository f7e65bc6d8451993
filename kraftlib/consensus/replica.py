"""The core's one door: `Replica.handle(event, now_ms)` returns what must now be done, in order.

Handlers are chosen by the class of the event, and for requests and answers by the class of the message: the table below
is the table of contents of this package.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from kraftlib.codec.declared import Message
from kraftlib.config import RaftConfig
from kraftlib.consensus import (
    describe,
    fetch_follower,
    fetch_leader,
    fetch_snapshot,
    joining,
    kraft_version,
    poll,
    quorum_epoch,
    repair,
    snapshots,
    vote,
    voter_changes,
)
from kraftlib.consensus import events as ev
from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.extensions import (
    commit_news,
    downstream,
    failed_state_machine,
    misconfiguration,
    priority,
    quarantine,
    read_index,
    snapshot_hash,
    state_digests,
    upstreams,
)
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.outstanding import Outstanding, OutstandingRequests
from kraftlib.consensus.requests import back_off
from kraftlib.consensus.responses import is_refused_strictly, refuse_request
from kraftlib.consensus.roles import Download, Leader, Role, Transfer, Unattached
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.status import QuorumStatus, status_of
from kraftlib.consensus.transitions import start
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import ConfigError, ensure
from kraftlib.types import ZERO_UUID, ElectionState, Endpoint, Epoch, LeaderAndEpoch, Offset, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from kraftlib.wire.messages.state_digest import StateDigestRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from kraftlib.wire.messages.vote import VoteRequest


class Replica:
    """One replica's consensus: given an event and the time, it returns the actions to perform.

    It touches no clock, file, socket or thread; chance comes from `random` alone. `wall_offset_ms` (wall clock minus
    the clock of `now_ms`) is for the timestamps in control records and may be corrected at any time.
    """

    def __init__(
        self,
        config: RaftConfig,
        *,
        key: ReplicaKey,
        cluster_id: str | None,
        log: LogView,
        election: ElectionState | None,
        random: random.Random,
        endpoints: Mapping[str, Endpoint],
        wall_offset_ms: int = 0,
        kept: Download | None = None,
    ) -> None:
        """`kept` is the download that an earlier process left behind."""
        if key.directory_id == ZERO_UUID:
            raise ConfigError("the directory id of a replica cannot be all zero")
        self._recorded = election or ElectionState()
        self._state = ReplicaState(
            config=config,
            key=key,
            cluster_id=cluster_id,
            endpoints={name.upper(): place for name, place in endpoints.items()},
            log=log,
            random=random,
            connections=OutstandingRequests(request_timeout_ms=config.request_timeout_ms),
            role_state=Unattached(),
            epoch=self._recorded.epoch,
            persisted=self._recorded,
            committed_offset=max([log.start_offset, *(snapshot.offset for snapshot in log.snapshots)]),
            wall_offset_ms=wall_offset_ms,
            kept=kept,
        )
        self._started = False

    # --- the door ----------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Action]:
        """Enter the role that the durable state asks for. Called once, before any event."""
        ensure(not self._started, "a replica starts once")
        self._started = True
        self._state.now_ms = now_ms
        return start(self._state, self._recorded) + poll.poll(self._state)

    def handle(self, event: ev.Event, now_ms: int) -> list[Action]:
        """Take note of `event`, then do whatever is due at `now_ms`."""
        state = self._state
        state.now_ms = max(now_ms, state.now_ms)
        actions = EVENTS[type(event)](state, event)
        if state.connections.requests:
            for late in state.connections.expire(state.now_ms):
                actions = actions + _give_up(state, late, ev.Failure.TIMED_OUT)
        return actions + poll.poll(state)

    def deadline_ms(self) -> int | None:
        """When a ev.TimeoutReached is due, if nothing happens before; None: never."""
        return poll.deadline_ms(self._state)

    # --- questions ---------------------------------------------------------------------------------------------------

    @property
    def wall_offset_ms(self) -> int:
        """Wall clock minus the clock of `now_ms`, in ms."""
        return self._state.wall_offset_ms

    @wall_offset_ms.setter
    def wall_offset_ms(self, offset_ms: int) -> None:
        self._state.wall_offset_ms = offset_ms

    @property
    def state(self) -> ReplicaState:
        """The memory of the core, for checkers and scripts to read; only the core itself changes it."""
        return self._state

    @property
    def key(self) -> ReplicaKey:
        """The key of this replica."""
        return self._state.key

    @property
    def role(self) -> Role:
        """Its role in its epoch."""
        return self._state.role

    @property
    def epoch(self) -> Epoch:
        """Its epoch."""
        return self._state.epoch

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader that it knows."""
        return self._state.leader_and_epoch

    @property
    def leader_endpoints(self) -> Mapping[str, Endpoint]:
        """Where the leader is reached, by listener name."""
        return self._state.leader_endpoints

    @property
    def high_watermark(self) -> Offset | None:
        """One past the last record that it knows to be committed."""
        return self._state.high_watermark

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self._state.log.voters.latest

    @property
    def kraft_version(self) -> int:
        """The finalized kraft.version."""
        return self._state.log.kraft_version.latest

    @property
    def is_voter(self) -> bool:
        """Whether it counts for majorities."""
        return self._state.is_voter

    @property
    def is_indispensable(self) -> bool:
        """Whether no majority is without it: it is the only voter, or one of two. No other replica could lead and
        repair."""
        return len(self._state.log.voters.latest.voters) <= 2 and self._state.is_voter

    @property
    def wants_records(self) -> bool:
        """Whether draining the accumulator now would move anything."""
        return fetch_leader.wants_records(self._state)

    def status(self) -> QuorumStatus:
        """Return a picture of this moment."""
        return status_of(self._state)


# --- one handler per event -------------------------------------------------------------------------------------------


def _request_received(state: ReplicaState, event: ev.RequestReceived[Message]) -> list[Action]:
    handler = REQUESTS.get(type(event.request))
    if handler is None:
        state.refuse("foreign request", type(event.request).__name__)
        return [SendResponse(event.request_id, None)]
    if state.config.strict and is_refused_strictly(state, event.request):
        return [SendResponse(event.request_id, None)]
    error = misconfiguration.look_at_asker(state, event)
    return handler(state, event) if error is ErrorCode.NONE else refuse_request(state, event, error)


def _response_received(state: ReplicaState, event: ev.ResponseReceived[Any]) -> list[Action]:
    outstanding = state.connections.take(event.correlation_id)
    if outstanding is None:
        return []
    return RESPONSES[type(outstanding.request)](state, outstanding, event.response)


def _request_failed(state: ReplicaState, event: ev.RequestFailed) -> list[Action]:
    outstanding = state.connections.take(event.correlation_id)
    if outstanding is None:
        return []
    return _give_up(state, outstanding, event.failure)


def _give_up(state: ReplicaState, outstanding: Outstanding[Message], failure: ev.Failure) -> list[Action]:
    """A request has no answer: leave its destination alone for a while, and do what else this request asks for."""
    upstreams.leave(state, outstanding.destination, failure.value)
    handler = FAILURES.get(type(outstanding.request))
    if handler is not None:
        return handler(state, outstanding, failure)
    back_off(state, outstanding)
    return []


def _peer_identified(state: ReplicaState, event: ev.PeerIdentified) -> list[Action]:
    others = state.controllers - {event.endpoint}
    state.controllers = others | {event.endpoint} if event.is_controller else others
    return []


def _flushed(state: ReplicaState, event: ev.Flushed) -> list[Action]:
    state.log.flushed(event.end_offset, event.log_version)
    state.flush_waiting_since_ms = None
    role = state.role_state
    if not isinstance(role, Leader):
        return []
    return [*fetch_leader.update_high_watermark(state, role), *fetch_leader.answer_parked(state, role)]


def _timeout_reached(state: ReplicaState, event: ev.TimeoutReached) -> list[Action]:
    return []


def _disk_space_changed(state: ReplicaState, event: ev.DiskSpaceChanged) -> list[Action]:
    state.disk_full, state.disk_full_since_ms = event.is_full, state.now_ms
    return []


def _resign_requested(state: ReplicaState, event: ev.ResignRequested) -> list[Action]:
    role = state.role_state
    if isinstance(role, Leader) and event.epoch == state.epoch:
        role.resign_requested = True
    return []


def _transfer_requested(state: ReplicaState, event: ev.TransferRequested) -> list[Action]:
    role = state.role_state
    if isinstance(role, Leader) and event.epoch == state.epoch and event.target_id in role.progress:
        role.transfer = Transfer(target_id=event.target_id, deadline_ms=state.now_ms + event.timeout_ms)
    return []


def _shutdown_requested(state: ReplicaState, event: ev.ShutdownRequested) -> list[Action]:
    state.shutdown_deadline_ms = state.now_ms + event.timeout_ms
    return []


EVENTS: Final[Mapping[type, Callable[[ReplicaState, Any], list[Action]]]] = {
    ev.RequestReceived: _request_received,
    ev.ResponseReceived: _response_received,
    ev.RequestFailed: _request_failed,
    ev.ConnectionLost: fetch_follower.handle_connection_lost,
    ev.PeerIdentified: _peer_identified,
    ev.RecordsSubmitted: fetch_leader.handle_records,
    ev.Flushed: _flushed,
    ev.LogTruncated: fetch_follower.handle_truncated,
    ev.DiskSpaceChanged: _disk_space_changed,
    ev.StateMachineFailed: failed_state_machine.handle_state_machine_failed,
    ev.StorageFailed: repair.handle_storage_failed,
    ev.RepairWritten: repair.handle_repair_written,
    ev.RepairRefused: repair.handle_repair_refused,
    ev.Repaired: repair.handle_repaired,
    ev.TimeoutReached: _timeout_reached,
    ev.SnapshotCreated: snapshots.handle_snapshot_created,
    ev.SnapshotDamaged: snapshots.handle_snapshot_damaged,
    ev.SnapshotLost: snapshots.handle_snapshot_lost,
    ev.SnapshotAdopted: fetch_snapshot.handle_snapshot_adopted,
    ev.RetentionDue: snapshots.handle_retention_due,
    ev.SnapshotChunkWritten: fetch_snapshot.handle_chunk_written,
    ev.DownloadHashed: snapshot_hash.handle_download_hashed,
    ev.SnapshotInstalled: fetch_snapshot.handle_snapshot_installed,
    ev.SnapshotRefused: fetch_snapshot.handle_snapshot_refused,
    ev.StateHashed: state_digests.handle_state_hashed,
    ev.StateHealed: quarantine.handle_state_healed,
    ev.ResignRequested: _resign_requested,
    ev.TransferRequested: _transfer_requested,
    ev.ReadBarrierRequested: read_index.handle_read_requested,
    ev.CommitLearned: commit_news.handle_commit_learned,
    ev.ShutdownRequested: _shutdown_requested,
}

REQUESTS: Final[Mapping[type, Callable[[ReplicaState, Any], list[Action]]]] = {
    VoteRequest: vote.handle_vote,
    BeginQuorumEpochRequest: quorum_epoch.handle_begin_quorum_epoch,
    EndQuorumEpochRequest: quorum_epoch.handle_end_quorum_epoch,
    FetchRequest: downstream.handle_fetch,
    FetchSnapshotRequest: fetch_snapshot.handle_fetch_snapshot,
    DescribeQuorumRequest: describe.handle_describe_quorum,
    AddRaftVoterRequest: voter_changes.handle_add_voter,
    RemoveRaftVoterRequest: voter_changes.handle_remove_voter,
    UpdateRaftVoterRequest: joining.handle_update_voter,
    UpdateFeaturesRequest: kraft_version.handle_update_features,
    DescribeClusterRequest: describe.handle_describe_cluster,
    ReadBarrierRequest: read_index.handle_read_barrier,
    SnapshotHashRequest: snapshot_hash.handle_snapshot_hash,
    ElectionPriorityRequest: priority.handle_priority,
    StateDigestRequest: state_digests.handle_state_digest,
}

RESPONSES: Final[Mapping[type, Callable[[ReplicaState, Any, Any], list[Action]]]] = {
    VoteRequest: vote.handle_vote_response,
    BeginQuorumEpochRequest: quorum_epoch.handle_begin_response,
    EndQuorumEpochRequest: quorum_epoch.handle_end_response,
    FetchRequest: fetch_follower.handle_fetch_response,
    FetchSnapshotRequest: fetch_snapshot.handle_fetch_snapshot_response,
    ApiVersionsRequest: voter_changes.handle_probe_response,
    AddRaftVoterRequest: joining.handle_join_response,
    RemoveRaftVoterRequest: joining.handle_join_response,
    UpdateRaftVoterRequest: joining.handle_update_response,
    DescribeQuorumRequest: joining.handle_describe_response,
    ReadBarrierRequest: read_index.handle_read_barrier_response,
    SnapshotHashRequest: snapshot_hash.handle_snapshot_hash_response,
    ElectionPriorityRequest: priority.handle_priority_response,
    StateDigestRequest: state_digests.handle_state_digest_response,
}

FAILURES: Final[Mapping[type, Callable[[ReplicaState, Any, ev.Failure], list[Action]]]] = {
    VoteRequest: vote.handle_vote_failed,
    ApiVersionsRequest: voter_changes.handle_probe_failed,
    UpdateRaftVoterRequest: joining.handle_update_failed,
    ReadBarrierRequest: read_index.handle_read_barrier_failed,
    SnapshotHashRequest: snapshot_hash.handle_snapshot_hash_failed,
    ElectionPriorityRequest: priority.handle_priority_failed,
    StateDigestRequest: state_digests.handle_state_digest_failed,
}
"""The requests for which more follows than a pause when they have no answer."""
