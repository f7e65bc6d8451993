"""The core's one door: `Replica.handle(event, now_ms)` returns what must now be done, in order.

Handlers are chosen by the class of the event, and for requests and answers by the class of the message: the table below
is the table of contents of this package.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from kraftlib.codec.declared import Message
from kraftlib.config import RaftConfig
from kraftlib.consensus import (
    fetch_follower,
    fetch_leader,
    fetch_snapshot,
    joining,
    poll,
    quorum_epoch,
    repair,
    snapshots,
    vote,
    voter_changes,
)
from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.describe import handle_describe_cluster, handle_describe_quorum
from kraftlib.consensus.events import (
    ConnectionLost,
    DiskSpaceChanged,
    DownloadHashed,
    Event,
    Failure,
    Flushed,
    LogTruncated,
    PeerIdentified,
    ReadBarrierRequested,
    RecordsSubmitted,
    Repaired,
    RepairRefused,
    RepairWritten,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    RetentionDue,
    ShutdownRequested,
    SnapshotAdopted,
    SnapshotChunkWritten,
    SnapshotCreated,
    SnapshotDamaged,
    SnapshotInstalled,
    SnapshotLost,
    SnapshotRefused,
    StateMachineFailed,
    StorageFailed,
    TimeoutReached,
    TransferRequested,
)
from kraftlib.consensus.extensions import failed_state_machine, priority, read_index, snapshot_hash
from kraftlib.consensus.extensions.misconfiguration import look_at_asker
from kraftlib.consensus.fetch_leader import update_high_watermark
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.outstanding import OutstandingRequests
from kraftlib.consensus.requests import back_off
from kraftlib.consensus.responses import is_refused_strictly, refuse_request
from kraftlib.consensus.roles import Download, Leader, Role, Transfer, Unattached
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.transitions import start
from kraftlib.consensus.voter_changes import handle_update_features
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import ConfigError, ensure
from kraftlib.types import ZERO_UUID, ElectionState, Endpoint, Epoch, LeaderAndEpoch, Offset, ReplicaId, ReplicaKey
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
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from kraftlib.wire.messages.vote import VoteRequest


@attrs.frozen(kw_only=True)
class ReplicaProgress:
    """The progress of one replica, as its leader sees it. Times are of the clock that the core is told."""

    key: ReplicaKey
    end_offset: Offset
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@attrs.frozen(kw_only=True)
class QuorumStatus:
    """This replica and its quorum, as it knows them at one moment."""

    key: ReplicaKey
    cluster_id: str | None
    role: Role
    is_voter: bool
    epoch: Epoch
    leader_id: ReplicaId | None
    voted_key: ReplicaKey | None
    high_watermark: Offset | None
    log_start_offset: Offset
    log_end_offset: Offset
    log_end_epoch: Epoch
    flushed_offset: Offset
    kraft_version: int
    voters: VoterSet
    voter_progress: tuple[ReplicaProgress, ...] = ()
    """Of the remote voters; only a leader knows."""
    observer_progress: tuple[ReplicaProgress, ...] = ()
    voter_change_pending: bool = False
    refused: Mapping[str, int] = attrs.field(factory=dict)
    """The number of refused messages of peers, by reason."""
    abstains: str | None = None
    """Why it neither stands nor, perhaps, votes, though it may be a voter."""
    disk_full: bool = False


class Replica:
    """One replica's consensus: told what happened and what time it is, it says what to do.

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

    def handle(self, event: Event, now_ms: int) -> list[Action]:
        """Take note of `event`, then do whatever is due at `now_ms`."""
        state = self._state
        state.now_ms = max(now_ms, state.now_ms)
        actions = EVENTS[type(event)](state, event)
        return actions + poll.poll(state)

    def deadline_ms(self) -> int | None:
        """When a TimeoutReached is due, if nothing happens before; None: never."""
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
        """The memory of the core, for checkers and scripts to read; nobody else changes it."""
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
        return self._state.voters

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
        return self._state.is_voter and len(self._state.voters) <= 2

    @property
    def wants_records(self) -> bool:
        """Whether draining the accumulator now would move anything."""
        return fetch_leader.wants_records(self._state)

    def status(self) -> QuorumStatus:
        """Return a picture of this moment."""
        state = self._state
        role = state.role_state

        def rows(table: Any) -> tuple[ReplicaProgress, ...]:
            return tuple(
                ReplicaProgress(
                    key=progress.key,
                    end_offset=progress.end_offset,
                    last_fetch_ms=progress.last_fetch_ms,
                    last_caught_up_ms=progress.last_caught_up_ms,
                )
                for progress in table.values()
            )

        return QuorumStatus(
            key=state.key,
            cluster_id=state.cluster_id,
            role=state.role,
            is_voter=state.is_voter,
            epoch=state.epoch,
            leader_id=state.leader_and_epoch.leader_id,
            voted_key=state.election.voted_key,
            high_watermark=state.high_watermark,
            log_start_offset=state.log.start_offset,
            log_end_offset=state.log.end_offset,
            log_end_epoch=state.log.last_epoch,
            flushed_offset=state.log.flushed_offset,
            kraft_version=state.log.kraft_version.latest,
            voters=state.voters,
            voter_progress=rows(role.progress) if isinstance(role, Leader) else (),
            observer_progress=rows(role.observers) if isinstance(role, Leader) else (),
            voter_change_pending=isinstance(role, Leader) and (role.change is not None or role.control_waits),
            refused=dict(state.refused),
            abstains=state.abstains,
            disk_full=state.disk_full,
        )


# --- one handler per event -------------------------------------------------------------------------------------------


def _request_received(state: ReplicaState, event: RequestReceived[Message]) -> list[Action]:
    handler = REQUESTS.get(type(event.request))
    if handler is None:
        state.refuse("foreign request", type(event.request).__name__)
        return [SendResponse(event.request_id, None)]
    if state.config.strict and is_refused_strictly(state, event.request):
        return [SendResponse(event.request_id, None)]
    error = look_at_asker(state, event)
    return handler(state, event) if error is ErrorCode.NONE else refuse_request(state, event, error)


def _response_received(state: ReplicaState, event: ResponseReceived[Any]) -> list[Action]:
    outstanding = state.connections.take(event.correlation_id)
    if outstanding is None:
        return []
    return RESPONSES[type(outstanding.request)](state, outstanding, event.response)


def _request_failed(state: ReplicaState, event: RequestFailed) -> list[Action]:
    outstanding = state.connections.take(event.correlation_id)
    if outstanding is None:
        return []
    unsupported = event.failure is Failure.UNSUPPORTED_VERSION
    if unsupported and isinstance(outstanding.request, VoteRequest):
        return vote.handle_vote_unsupported(state, outstanding)
    if isinstance(outstanding.request, ReadBarrierRequest):
        return read_index.handle_read_barrier_failed(state, outstanding, event.failure)
    if isinstance(outstanding.request, SnapshotHashRequest):
        return snapshot_hash.handle_snapshot_hash_failed(state, outstanding)
    if isinstance(outstanding.request, ElectionPriorityRequest):
        return priority.handle_priority_failed(state, outstanding, event.failure)
    if isinstance(outstanding.request, ApiVersionsRequest):
        return voter_changes.handle_probe_failed(state, outstanding)
    if unsupported and isinstance(outstanding.request, UpdateRaftVoterRequest):
        return joining.handle_update_unsupported(state)
    back_off(state, outstanding)
    return []


def _peer_identified(state: ReplicaState, event: PeerIdentified) -> list[Action]:
    if event.is_controller:
        state.controllers |= {event.endpoint}
    else:
        state.controllers -= {event.endpoint}
    return []


def _flushed(state: ReplicaState, event: Flushed) -> list[Action]:
    state.log.flushed(event.end_offset, event.log_version)
    state.flush_waiting_since_ms = None
    role = state.role_state
    if not isinstance(role, Leader):
        return []
    return [*update_high_watermark(state, role), *fetch_leader.answer_parked(state, role)]


def _timeout_reached(state: ReplicaState, event: TimeoutReached) -> list[Action]:
    return []


def _disk_space_changed(state: ReplicaState, event: DiskSpaceChanged) -> list[Action]:
    state.disk_full, state.disk_full_since_ms = event.is_full, state.now_ms
    return []


def _resign_requested(state: ReplicaState, event: ResignRequested) -> list[Action]:
    role = state.role_state
    if isinstance(role, Leader) and event.epoch == state.epoch:
        role.resign_requested = True
    return []


def _transfer_requested(state: ReplicaState, event: TransferRequested) -> list[Action]:
    role = state.role_state
    if isinstance(role, Leader) and event.epoch == state.epoch and event.target_id in role.progress:
        role.transfer = Transfer(target_id=event.target_id, deadline_ms=state.now_ms + event.timeout_ms)
    return []


def _shutdown_requested(state: ReplicaState, event: ShutdownRequested) -> list[Action]:
    state.shutdown_deadline_ms = state.now_ms + event.timeout_ms
    return []


EVENTS: Final[Mapping[type, Callable[[ReplicaState, Any], list[Action]]]] = {
    RequestReceived: _request_received,
    ResponseReceived: _response_received,
    RequestFailed: _request_failed,
    ConnectionLost: fetch_follower.handle_connection_lost,
    PeerIdentified: _peer_identified,
    RecordsSubmitted: fetch_leader.handle_records,
    Flushed: _flushed,
    LogTruncated: fetch_follower.handle_truncated,
    DiskSpaceChanged: _disk_space_changed,
    StateMachineFailed: failed_state_machine.handle_state_machine_failed,
    StorageFailed: repair.handle_storage_failed,
    RepairWritten: repair.handle_repair_written,
    RepairRefused: repair.handle_repair_refused,
    Repaired: repair.handle_repaired,
    TimeoutReached: _timeout_reached,
    SnapshotCreated: snapshots.handle_snapshot_created,
    SnapshotDamaged: snapshots.handle_snapshot_damaged,
    SnapshotLost: snapshots.handle_snapshot_lost,
    SnapshotAdopted: fetch_snapshot.handle_snapshot_adopted,
    RetentionDue: snapshots.handle_retention_due,
    SnapshotChunkWritten: fetch_snapshot.handle_chunk_written,
    DownloadHashed: snapshot_hash.handle_download_hashed,
    SnapshotInstalled: fetch_snapshot.handle_snapshot_installed,
    SnapshotRefused: fetch_snapshot.handle_snapshot_refused,
    ResignRequested: _resign_requested,
    TransferRequested: _transfer_requested,
    ReadBarrierRequested: read_index.handle_read_requested,
    ShutdownRequested: _shutdown_requested,
}

REQUESTS: Final[Mapping[type, Callable[[ReplicaState, Any], list[Action]]]] = {
    VoteRequest: vote.handle_vote,
    BeginQuorumEpochRequest: quorum_epoch.handle_begin_quorum_epoch,
    EndQuorumEpochRequest: quorum_epoch.handle_end_quorum_epoch,
    FetchRequest: fetch_leader.handle_fetch,
    FetchSnapshotRequest: fetch_snapshot.handle_fetch_snapshot,
    DescribeQuorumRequest: handle_describe_quorum,
    AddRaftVoterRequest: voter_changes.handle_add_voter,
    RemoveRaftVoterRequest: voter_changes.handle_remove_voter,
    UpdateRaftVoterRequest: joining.handle_update_voter,
    UpdateFeaturesRequest: handle_update_features,
    DescribeClusterRequest: handle_describe_cluster,
    ReadBarrierRequest: read_index.handle_read_barrier,
    SnapshotHashRequest: snapshot_hash.handle_snapshot_hash,
    ElectionPriorityRequest: priority.handle_priority,
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
}
