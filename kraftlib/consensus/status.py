"""A picture of one replica and of its quorum, as the replica knows them at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kraftlib.consensus.roles import Leader, Progress, Role
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voters import VoterSet
from kraftlib.frozen import immutable
from kraftlib.types import Epoch, Offset, ReplicaId, ReplicaKey


@immutable(kw_only=True)
class ReplicaProgress:
    """The progress of one replica, as its leader sees it. Times are of the clock that the core is told."""

    key: ReplicaKey
    end_offset: Offset
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@immutable(kw_only=True)
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
    quarantined_at: Offset | None = None
    """The offset at which the state of this replica was found to differ from that of a majority; None if it was not."""
    differing: tuple[ReplicaId, ...] = ()
    """Other replicas whose state was not that of the majority when it was compared last."""
    quarantines: int = 0
    undecided_offset: Offset = -1
    agreed_offset: Offset = -1


def status_of(state: ReplicaState) -> QuorumStatus:
    """Return a picture of this moment."""
    digests = state.digests
    leader = state.role_state if isinstance(state.role_state, Leader) else None
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
        voter_progress=_rows(leader.progress.values()) if leader else (),
        observer_progress=_rows(leader.observers.values()) if leader else (),
        voter_change_pending=leader is not None and (leader.change is not None or leader.control_waits),
        refused=dict(state.refused),
        abstains=state.abstains,
        disk_full=state.disk_full,
        quarantined_at=None if digests.quarantine is None else digests.quarantine.offset,
        quarantines=digests.quarantines,
        differing=tuple(sorted(digests.differing)),
        undecided_offset=digests.undecided_offset,
        agreed_offset=digests.agreed_offset,
    )


def _rows(known: Iterable[Progress]) -> tuple[ReplicaProgress, ...]:
    return tuple(
        ReplicaProgress(
            key=progress.key,
            end_offset=progress.end_offset,
            last_fetch_ms=progress.last_fetch_ms,
            last_caught_up_ms=progress.last_caught_up_ms,
        )
        for progress in known
    )
