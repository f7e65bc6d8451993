"""A majority of the voters is gone for good: the remaining directories, the records that may be lost, and the way on.

While a majority is there, this module has no use: Raft elects a leader by itself, and an operator who picks one may
pick one that lacks what was acknowledged. So all the directories that are left are read, the voters in force are found,
and if most of them are here and know their votes, this is refused: one that has lost its vote waits for a leader, and
cannot make one. Else the most complete log is the best that there is. The records that it lacks are unknown: a majority
without it may have acknowledged more. (Precedents: etcd's force-new-cluster, `peers.json`.)

A quorum whose epochs are used up is lost as well, though all its voters are there: none of them may stand. The way on
is the same, with the epoch that follows those of the logs. Such an epoch fences no replica, so the operator must.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import attrs

from kraftlib.errors import ConfigError, KraftError, StorageError
from kraftlib.records.control import decode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.storage import files, names
from kraftlib.storage.claim import claim_directory
from kraftlib.storage.election.line import parse_line
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.meta_properties import read_meta_properties
from kraftlib.storage.notes import NoteError
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import LAST_EPOCH_TO_STAND_IN, Epoch, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey


@attrs.frozen(kw_only=True)
class Remains:
    """The contents of one directory."""

    path: Path
    cluster_id: str
    key: ReplicaKey
    vote_epoch: Epoch
    """Epoch of its vote."""
    end: OffsetAndEpoch = OffsetAndEpoch(offset=0, epoch=0)
    start_offset: Offset = 0
    kraft_version: int = 0
    voters: tuple[ReplicaKey, ...] = ()
    """As its log says; empty for a static quorum."""
    static_voters: tuple[ReplicaId, ...] = ()
    """As its quorum-state says; empty, if that does not know."""
    has_lost_vote: bool = False
    """It gives no vote before there is a leader, since it may have voted already."""
    damage: str | None = None
    """Why its log cannot be used."""

    @property
    def epoch(self) -> Epoch:
        """The greatest epoch that it has seen."""
        return max(self.end.epoch, self.vote_epoch)


@attrs.frozen(kw_only=True)
class Verdict:
    """The verdict on the directories."""

    best: Remains
    epoch: Epoch
    """The epoch to go on in."""
    fences: bool
    """Whether it is beyond all that were seen; no, if those are used up."""
    voters: tuple[ReplicaKey, ...]
    present: tuple[ReplicaKey, ...]
    unable: tuple[ReplicaKey, ...]
    """Those of the present ones that have lost their votes, or have no epoch left."""
    kraft_version: int

    @property
    def electors(self) -> int:
        """The number of voters at hand that may vote."""
        return len(self.present) - len(self.unable)

    @property
    def has_majority(self) -> bool:
        """Whether most of the voters are here and may vote, so that they can elect a leader themselves."""
        return self.electors > len(self.voters) // 2


def read_remains(directory: Path) -> Remains:
    """Look at the directory of a replica that does not run; a torn tail is cut off, as a start would do.

    Raises: StorageError, also where it is in use.
    """
    claim = claim_directory(directory)
    try:
        partition = directory / names.PARTITION_DIRECTORY
        key = ReplicaKey(_node_id(directory), claim.directory_id)
        vote_epoch = _vote_epoch(partition)
        remains = Remains(path=directory, cluster_id=claim.cluster_id, key=key, vote_epoch=vote_epoch)
        try:
            log = FileReplicatedLog.open(partition)
        except KraftError as error:
            return attrs.evolve(remains, damage=" ".join(str(error).split()))
        try:
            version, voters = _controls(log, partition)
            starts = log.epoch_starts()
            newest = log.snapshots()[-1] if log.snapshots() else None
            epoch = starts[-1].epoch if starts else newest.epoch if newest else 0
            election = FileQuorumStateStore(partition, log_epoch=epoch).read()
            return attrs.evolve(
                remains, end=OffsetAndEpoch(offset=log.end_offset, epoch=epoch), start_offset=log.start_offset,
                kraft_version=version, voters=voters, static_voters=election.static_voters if election else (),
                has_lost_vote=log.is_doubtful or (election is not None and election.amnesiac),
            )  # fmt: skip
        finally:
            log.close()
    finally:
        claim.lock.release()


def _node_id(directory: Path) -> ReplicaId:
    if (meta := read_meta_properties(directory)) is None:
        raise StorageError(f"{directory} is not formatted", path=directory)
    return meta.node_id


def _vote_epoch(partition: Path) -> Epoch:
    data = files.read_file(partition / names.QUORUM_STATE, max_bytes=1 << 20)
    try:
        return int(parse_line(data)["leaderEpoch"]) if data is not None else 0
    except (NoteError, KraftError):
        return 0  # damaged: the epoch of the log counts


def _controls(log: FileReplicatedLog, partition: Path) -> tuple[int, tuple[ReplicaKey, ...]]:
    """Return kraft.version and voters in force at the end of a log."""
    version, offset = 0, log.start_offset
    voters: tuple[ReplicaKey, ...] = ()
    if log.snapshots():
        newest = log.snapshots()[-1]
        source = FileSnapshotSource(partition / names.checkpoint_name(newest))
        with SnapshotReader(source, epoch=newest.epoch) as reader:
            version, voters = reader.kraft_version, _keys(reader.voters)
        offset = max(offset, newest.offset)
    for batch in log.scan():
        if not batch.is_control or batch.base_offset < offset:
            continue
        for _, record in decode_control_batch(batch):
            if isinstance(record, KRaftVersionRecord):
                version = record.kraft_version
            elif isinstance(record, VotersRecord):
                voters = _keys(record)
    return version, voters


def _keys(record: VotersRecord | None) -> tuple[ReplicaKey, ...]:
    voters = () if record is None else record.voters
    return tuple(ReplicaKey(voter.voter_id, _directory_id(voter.voter_directory_id)) for voter in voters)


def _directory_id(value: uuid.UUID) -> uuid.UUID | None:
    return value if value.int else None


def judge(remains: Sequence[Remains], *, static_voters: Sequence[ReplicaId] = ()) -> Verdict:
    """Say which log is the best, and whether a majority of the voters is among these directories.

    `static_voters` are those of a static quorum, which no log knows. Raises: ConfigError.
    """
    if len({one.cluster_id for one in remains}) > 1:
        raise ConfigError(f"these are of several clusters: {', '.join(sorted({one.cluster_id for one in remains}))}")
    if len({one.key.id for one in remains}) < len(remains):
        raise ConfigError("two of these directories are of the same node: name each replica once")
    usable = [one for one in remains if one.damage is None]
    if not usable:
        raise ConfigError("no log among these directories can be used: restore a backup")
    best = max(usable, key=lambda one: one.end)
    voters = best.voters or tuple(ReplicaKey(voter) for voter in static_voters)
    if not voters:
        raise ConfigError("the voters of a static quorum stand in the configuration only: name them with --voters")
    if not best.voters and best.static_voters not in ((), tuple(sorted(static_voters))):
        raise ConfigError(
            f"--voters names {sorted(static_voters)}, and node {best.key.id} ran with {list(best.static_voters)}: with"
            " others, a majority cannot be told from a minority; name the voters in force, those that are lost too"
        )
    present = tuple(voter for voter in voters if any(voter.matches(one.key) for one in usable))
    unable = [one.key for one in usable if one.has_lost_vote or one.epoch > LAST_EPOCH_TO_STAND_IN]
    highest = max(one.epoch for one in remains)
    fences = highest < LAST_EPOCH_TO_STAND_IN
    epoch = (highest if fences else max(one.end.epoch for one in usable)) + 1
    return Verdict(
        best=best,
        epoch=epoch,
        fences=fences,
        voters=voters,
        present=present,
        unable=tuple(voter for voter in present if any(voter.matches(key) for key in unable)),
        kraft_version=best.kraft_version,
    )
