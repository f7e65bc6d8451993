"""The state of a replica: `client.status()` for people and programs, `client.metrics()` under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import attrs

from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.consensus.status import QuorumStatus, ReplicaProgress
from kraftlib.frozen import immutable
from kraftlib.runtime.metrics import RaftMetrics
from kraftlib.runtime.scrubber import ScrubCounts
from kraftlib.types import ZERO_UUID, Endpoint, Epoch, Offset, ReplicaId, ReplicaKey, parse_uuid, uuid_text


@immutable(kw_only=True)
class ReplicaStatus:
    """One voter or observer. Fields that only a leader can fill are None elsewhere."""

    id: ReplicaId
    directory_id: str | None
    endpoints: dict[str, str] = attrs.field(factory=dict)
    end_offset: Offset | None = None
    """Everything below is durable there, as its last Fetch told."""
    lag: int | None = None
    """Number of records that it lacks and the leader has."""
    last_fetch_ms_ago: int | None = None
    last_caught_up_ms_ago: int | None = None

    @property
    def key(self) -> ReplicaKey:
        """Its id and directory id, as `add_voter` and `remove_voter` want them."""
        return _key(self.id, self.directory_id)


@immutable(kw_only=True)
class Status:
    """A replica and its quorum at one moment, as this replica sees it."""

    node_id: ReplicaId
    directory_id: str | None
    cluster_id: str | None
    """None: an observer that was not told."""
    endpoint: str
    role: str
    is_voter: bool
    leader_id: ReplicaId | None
    epoch: Epoch
    high_watermark: Offset | None
    """One past the last record known to be committed; None until the first news of it."""
    log_start_offset: Offset
    log_end_offset: Offset
    log_end_epoch: Epoch
    flushed_offset: Offset
    applied_offset: Offset
    """One past the last record that the state machine, or else every listener, has taken."""
    kraft_version: int
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...] = ()
    waiting: int = 0
    """Callers that wait for a record they appended here."""
    refused: dict[str, int] = attrs.field(factory=dict)
    """Counts of refused messages of peers, by reason. They include refusals by a peer: another cluster, another list of
    voters, or not the replica that was meant. A WARNING names each peer and the values that disagree."""
    disk_full: bool = False
    """Its disk has no space for more records: a leader refuses appends, a follower falls behind."""
    abstains: str | None = None
    """The reason why it starts no election: its disk has lost something, which a repair fetches from the others; or
    its state machine has failed."""
    failure: str | None = None
    """Why the replica has stopped itself, if it has, or why its state machine was stopped."""
    quarantined_at: Offset | None = None
    """The offset at which the state of its state machine was found to differ from that of a majority; None if it was
    not, or is healed (`digest_interval_ms`)."""
    differing: tuple[ReplicaId, ...] = ()
    """Other replicas whose state was not that of the majority when it was compared last."""
    agreed_offset: Offset | None = None
    """The newest offset at which its state was that of a majority."""
    undecided_offset: Offset | None = None
    """The newest offset at which states differ and none is that of a majority: it is unknown which one is right."""

    @property
    def key(self) -> ReplicaKey:
        """The id and directory id of this replica, as `add_voter` and `remove_voter` want them."""
        return _key(self.node_id, self.directory_id)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, fit for JSON."""
        return attrs.asdict(self)


def _key(replica_id: ReplicaId, directory_id: str | None) -> ReplicaKey:
    return ReplicaKey(replica_id, None if directory_id is None else parse_uuid(directory_id))


def replica_status(
    replica: Replica,
    *,
    endpoint: Endpoint,
    applied_offset: Offset,
    waiting: int,
    failure: Exception | None,
    now_ms: int,
) -> Status:
    """Put together what the core and the runtime know."""
    quorum = replica.status()
    progress = {row.key.id: row for row in quorum.voter_progress}
    voters = []
    for voter in quorum.voters:
        row = _row(voter.key.id, progress.get(voter.key.id), quorum, now_ms)
        if voter.key.id == quorum.key.id:
            row = attrs.evolve(row, end_offset=quorum.flushed_offset, lag=0 if quorum.role is Role.LEADER else None)
        directory_id = voter.key.directory_id
        endpoints = {name: str(place) for name, place in voter.endpoints.items()}
        voters.append(attrs.evolve(row, directory_id=_text(directory_id), endpoints=endpoints))
    return Status(
        node_id=quorum.key.id,
        directory_id=_text(quorum.key.directory_id),
        cluster_id=quorum.cluster_id,
        endpoint=str(endpoint),
        role=str(quorum.role),
        is_voter=quorum.is_voter,
        leader_id=quorum.leader_id,
        epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        log_start_offset=quorum.log_start_offset,
        log_end_offset=quorum.log_end_offset,
        log_end_epoch=quorum.log_end_epoch,
        flushed_offset=quorum.flushed_offset,
        applied_offset=applied_offset,
        kraft_version=quorum.kraft_version,
        voters=tuple(voters),
        observers=tuple(_observers(quorum.observer_progress, quorum, now_ms)),
        waiting=waiting,
        refused=dict(quorum.refused),
        abstains=quorum.abstains,
        disk_full=quorum.disk_full,
        failure=str(failure) if failure is not None else None,
        quarantined_at=quorum.quarantined_at,
        differing=quorum.differing,
        agreed_offset=None if quorum.agreed_offset < 0 else quorum.agreed_offset,
        undecided_offset=None if quorum.undecided_offset < 0 else quorum.undecided_offset,
    )


def _text(directory_id: UUID | None) -> str | None:
    return None if directory_id is None else uuid_text(directory_id)


def _observers(rows: Iterable[ReplicaProgress], quorum: QuorumStatus, now_ms: int) -> Iterable[ReplicaStatus]:
    for row in rows:
        directory_id = row.key.directory_id
        yield attrs.evolve(_row(row.key.id, row, quorum, now_ms), directory_id=_text(directory_id))


def _row(replica_id: ReplicaId, row: ReplicaProgress | None, quorum: QuorumStatus, now_ms: int) -> ReplicaStatus:
    if row is None:
        return ReplicaStatus(id=replica_id, directory_id=None)
    known = row.end_offset >= 0
    return ReplicaStatus(
        id=replica_id,
        directory_id=None,
        end_offset=row.end_offset if known else None,
        lag=max(0, quorum.log_end_offset - row.end_offset) if known else None,
        last_fetch_ms_ago=None if row.last_fetch_ms is None else now_ms - row.last_fetch_ms,
        last_caught_up_ms_ago=None if row.last_caught_up_ms is None else now_ms - row.last_caught_up_ms,
    )


def current_state(status: QuorumStatus) -> str:
    """Return the metric `current-state` (KIP-595, Quorum Metrics), which tells more than the role."""
    voted = status.voted_key is not None
    match status.role:
        case Role.LEADER | Role.CANDIDATE:
            return str(status.role)
        case Role.PROSPECTIVE:
            return "prospective-voted" if voted else "prospective"
        case Role.UNATTACHED if voted:
            return "unattached-voted"
        case Role.FOLLOWER:
            return "follower" if status.is_voter else "observer"
        case _:
            return "unattached"


def replica_metrics(
    replica: Replica,
    metrics: RaftMetrics,
    *,
    applied_offset: Offset,
    scrubs: ScrubCounts | None = None,
    machine_failed: bool = False,
    tls_metrics: Mapping[str, float] | None = None,
) -> dict[str, float | str]:
    """Return Kafka's `raft-metrics` by name. Unknown numbers are -1, averages of nothing NaN, as in Kafka.

    Beyond Kafka's: the work of scrubs, whether the disk is full, how many ranges of the log are missing, whether the
    state machine has failed, the results of comparing states, the sum of `Status.refused`, and the dates of the files
    of `[tls]`.
    """
    status, log = replica.status(), replica.state.log
    leads = status.role is Role.LEADER
    votes_for_itself = status.role in (Role.LEADER, Role.CANDIDATE)
    vote = status.key if votes_for_itself else status.voted_key
    named: dict[str, float | str] = {
        "current-state": current_state(status),
        "current-leader": -1 if status.leader_id is None else status.leader_id,
        "current-vote": -1 if vote is None else vote.id,
        "current-vote-directory-id": uuid_text((vote.directory_id if vote is not None else None) or ZERO_UUID),
        "current-epoch": status.epoch,
        "high-watermark": -1 if status.high_watermark is None else status.high_watermark,
        "log-end-offset": status.log_end_offset,
        "log-end-epoch": status.log_end_epoch,
        "number-unknown-voter-connections": 0,
        "number-of-voters": len(status.voters),
        "ignored-static-voters": int(bool(replica.state.config.voters) and log.voters.latest_offset is not None),
        **metrics.to_dict(),
        "last-applied-record-offset": applied_offset - 1,
        "disk-full": int(status.disk_full),
        "log-holes": len(log.holes),
        "state-machine-failed": int(machine_failed),
        "state-quarantined": int(status.quarantined_at is not None),
        "state-quarantines-total": status.quarantines,
        "states-differing": len(status.differing),
        "states-undecided": int(status.undecided_offset >= 0),
        "states-agreed-offset": status.agreed_offset,
        "refused-total": sum(status.refused.values()),
    }
    if scrubs is not None:
        named["scrubs-completed"] = scrubs.completed
        named["scrub-bytes-total"] = scrubs.bytes_read
        named["scrub-findings-total"] = scrubs.findings
    named.update(tls_metrics or {})
    if leads:
        named["number-of-observers"] = len(status.observer_progress)
        named["uncommitted-voter-change"] = int(status.voter_change_pending)
    return named
