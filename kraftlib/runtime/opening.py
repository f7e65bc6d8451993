"""Opens a replica from its configuration: its stores, its identity, and the voters and epochs in its log.

Every mistake is reported here, before anything is bound or sent: an unformatted or locked directory, the directory of
another cluster, a quorum without this node.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from kraftlib.config import RaftConfig
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import ConfigError, CorruptBatchError, ElectionStateLostError
from kraftlib.frozen import immutable
from kraftlib.records.batch import Batch
from kraftlib.records.control import decode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.capabilities import Capabilities, capabilities_of
from kraftlib.runtime.snapshots.holds import Holds, HoldStore
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
from kraftlib.storage.names import PARTITION_DIRECTORY
from kraftlib.storage.skips_file import Skip, read_skips
from kraftlib.storage.snapshots.download_files import DownloadFiles
from kraftlib.storage.snapshots.increment_files import IncrementFiles
from kraftlib.types import ElectionState, Endpoint, Offset, ReplicaId, ReplicaKey, new_uuid, socket_path

logger = logging.getLogger("kraftlib.runtime")

MEMORY_CLUSTER_ID: Final = "memory"
"""Cluster id of voters without a directory and without a configured one."""

SCAN_BYTES: Final = 8 * 1024 * 1024


@immutable(kw_only=True)
class Opened:
    """The stores of a replica, its identity, and the voters and epochs in its log."""

    key: ReplicaKey
    cluster_id: str | None
    log: ReplicatedLog
    elections: QuorumStateStore
    election: ElectionState | None
    view: LogView
    holds: Holds
    downloads: DownloadFiles | None
    increments: IncrementFiles | None
    skips: Sequence[Skip] = ()

    def close(self) -> None:
        """Release the stores. Raises: StorageError, if the log cannot be flushed."""
        try:
            self.log.close()
        finally:
            self.elections.close()


def open_replica(config: RaftConfig, *, log: ReplicatedLog | None, elections: QuorumStateStore | None) -> Opened:
    """Open the directory of `config`, or take the stores that are given, or memory; read what the core needs to know.

    Raises: ConfigError, NotFormattedError, DirectoryInUseError, StorageError.
    """
    check_voters(config)
    cluster_id, directory_id = config.cluster_id, None
    partition, downloads, increments = None, None, None
    if config.directory is not None and (log is None or elections is None):
        if log is not None or elections is not None:
            raise ConfigError(
                f"directory={str(config.directory)!r} holds both: give `log` and `elections`, or none of them"
            )
        from kraftlib.storage.directory import open_directory  # most of storage, and not needed by memory stores

        directory = open_directory(config)
        log, elections = directory.log, directory.elections
        partition = directory.path / PARTITION_DIRECTORY
        keep_space = directory.log.keep_space_for_records
        downloads = DownloadFiles(
            partition, file_mode=config.file_mode, frozen=directory.log.adopt_snapshot, before_write=keep_space
        )
        increments = IncrementFiles(partition, file_mode=config.file_mode, before_write=keep_space)
        cluster_id, directory_id = directory.cluster_id, directory.directory_id
    elif (log is None or elections is None) and (config.voters or log is not None or elections is not None):
        # Not of an observer that follows from memory: it acknowledges nothing.
        logger.warning(
            "replica %d keeps its %s in memory: the records and votes that it acknowledges are lost with the process; "
            "name a directory",
            config.node_id,
            "log and votes" if log is None and elections is None else "votes" if elections is None else "log",
        )
    if log is None or elections is None:
        from kraftlib.storage.memory import (  # most replicas have a directory
            MemoryQuorumStateStore,
            MemoryReplicatedLog,
        )

        log = log if log is not None else MemoryReplicatedLog()
        elections = elections if elections is not None else MemoryQuorumStateStore()
    try:
        view, election = view_of(log, config), elections.read()
        key = ReplicaKey(config.node_id, directory_id or new_uuid())
        if capabilities_of(log).is_doubtful:
            # The end of its acknowledged log is unknown, too, so it waits until it has all committed records.
            election = attrs.evolve(election or ElectionState(), amnesiac=True)
        check_alone(key, election, view)
        check_static_voters(config, election, view, log)
        return Opened(
            key=key,
            # An observer need not know it: it may be unable to ask, and it can do no harm.
            cluster_id=cluster_id or (MEMORY_CLUSTER_ID if config.voters else None),
            log=log,
            elections=elections,
            election=election,
            view=view,
            holds=HoldStore(partition, config.file_mode),
            downloads=downloads,
            increments=increments,
            skips=[] if partition is None else read_skips(partition),
        )
    except BaseException:
        log.close()
        elections.close()
        raise


def check_voters(config: RaftConfig) -> None:
    """Refuse a static quorum that this node is not in; warn of one that survives no failure."""
    ids = [voter.id for voter in config.voters]
    names = ",".join(map(str, config.voters))
    if ids and config.node_id not in ids:
        raise ConfigError(
            f"node_id={config.node_id} is not among voters={names}: add it there, or, for a replica that only follows, "
            f"leave voters empty and name bootstrap_servers"
        )
    if len(ids) == 2:
        logger.warning("voters=%s: a quorum of two survives no failure, since both are a majority; take three", names)


def check_alone(key: ReplicaKey, election: ElectionState | None, view: LogView) -> None:
    """Refuse the only voter of a quorum that has lost something: no other replica has it."""
    voters = view.voters.latest
    if view.holes and key in voters and len(voters) == 1:
        missing = ", ".join(f"[{hole.start_offset}, {hole.end_offset})" for hole in view.holes)
        raise CorruptBatchError(
            f"replica {key.id} is the only voter and its log is damaged: the records {missing} were durable once and"
            " no other replica has them. Nothing was cut. Restore the directory from a backup, or let `kraftlib"
            " recover` make a new quorum of the rest"
        )
    if election is not None and election.amnesiac and key in voters and len(voters) == 1:
        raise ElectionStateLostError(
            f"replica {key.id} is the only voter and has lost its election state, quorum-state, or cannot tell how long"
            " its log was: its votes, leaderships and acknowledgements are forgotten, and no other replica knows them."
            " Restore the directory from a backup, or let `kraftlib recover` make a new quorum of it: `kraftlib recover"
            " DIR --advertised HOST:PORT`, or of a static quorum `kraftlib recover DIR --voters ID@HOST:PORT`"
        )


def check_static_voters(config: RaftConfig, election: ElectionState | None, view: LogView, log: ReplicatedLog) -> None:
    """Refuse a list of static voters other than the one under which this replica has voted.

    A majority of the old list and one of the new list need not meet, so both could elect a leader in one epoch. Only
    ids count: an address may change, and so may the order. A replica that was never in an epoch has promised nothing.
    """
    if not config.voters:
        return
    if view.voters.latest_offset is not None:
        _warn_of_ignored(config, view.voters.latest)
        return
    has_run = election is not None and election.epoch > 0
    before = (election.static_voters if election is not None and has_run else ()) or voters_of_last_epoch(log)
    now = tuple(sorted(voter.id for voter in config.voters))
    if not before or before == now:
        return
    raise ConfigError(
        f"voters={','.join(map(str, config.voters))} names {_ids(now)}, and replica {config.node_id} has run as one of"
        f" {_ids(before)}: a majority of each list could elect a leader of its own, and acknowledged records would be"
        f" lost. Put {_ids(before)} back, on every replica; addresses may change. To change who votes, let the quorum"
        " become dynamic (`kraftlib quorum upgrade`), then use `kraftlib quorum add-voter` and `remove-voter`; if most"
        " of the voters are gone for good, use `kraftlib recover`"
    )


def _warn_of_ignored(config: RaftConfig, voters: VoterSet) -> None:
    """Warn about a list of voters that has no effect: the log names the voters."""
    listed = tuple(sorted(voter.id for voter in config.voters))
    if listed != voters.ids:
        logger.warning(
            "voters=%s is ignored: this quorum is dynamic, its log names %s, and `kraftlib quorum add-voter` and"
            " `remove-voter` change them; take the list out of the configuration, and name bootstrap_servers",
            ",".join(map(str, config.voters)),
            _ids(voters.ids),
        )


def _ids(voter_ids: Sequence[ReplicaId]) -> str:
    return "{" + ", ".join(map(str, voter_ids)) + "}"


def voters_of_last_epoch(log: ReplicatedLog) -> tuple[ReplicaId, ...]:
    """Return the voters that the leader of the newest epoch in the log has named; empty if its record is not there."""
    for start in reversed(log.epoch_starts()):
        if not log.start_offset <= start.start_offset < log.end_offset:
            continue  # it began, and has no record yet; or its first record is gone
        try:
            batch = next(iter(log.read(start.start_offset, 1)))
        except CorruptBatchError:
            return ()  # it is fetched again
        if not batch.is_control or batch.base_offset != start.start_offset:
            return ()
        for _, record in decode_control_batch(batch):
            if isinstance(record, LeaderChangeMessage):
                return tuple(sorted(voter.voter_id for voter in record.voters))
    return ()


def view_of(log: ReplicatedLog, config: RaftConfig) -> LogView:
    """Describe the log to the core: ends, epochs, snapshots, and every voter set and kraft.version in it."""
    can = capabilities_of(log)
    static = VoterSet.static(config.voters, listener_name=config.listener_name) if config.voters else None
    view = LogView.build(
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        epoch_starts=log.epoch_starts(),
        snapshots=log.snapshots(),
        static_voters=static,
    )
    view.holes, stored = list(can.holes()), log.snapshots()
    newest = max((snapshot for snapshot in stored if snapshot.offset <= log.end_offset), default=None)
    lost = can.checks.lost_controls() if can.checks is not None else None
    if lost is not None and (newest is None or newest < lost[0]) and _is_needed(log, can, lost[0].offset):
        # Its records are lost, its header is not: the voters are known all the same.
        view.observe_snapshot(*lost)
    elif newest is not None or (view.holes and stored):
        newest = newest or stored[0]  # where records are missing, one that is ahead of the log may be all that tells
        with SnapshotReader(log.open_snapshot(newest), epoch=newest.epoch) as reader:
            controls: list[object] = [KRaftVersionRecord(kraft_version=reader.kraft_version)]
            view.observe_snapshot(newest, [*controls, *([reader.voters] if reader.voters is not None else [])])
    offset = max(log.start_offset, view.header_offset)
    for batch in _control_batches(log, offset) if can.controls is None else can.controls.control_batches():
        if batch.base_offset >= offset:
            view.observe(batch)
    if not view.voters.latest.voters and not config.bootstrap_servers:
        raise ConfigError(
            f"replica {config.node_id} knows no other replica: voters and bootstrap_servers are empty, and its log "
            f"names no voters; name one of them, or format its directory with --standalone or --initial-controllers"
        )
    return view


def _is_needed(log: ReplicatedLog, can: Capabilities, offset: Offset) -> bool:
    """Whether only the header of a lost snapshot that ended at `offset` tells the voters there: records before it are
    missing. A log that has them all tells itself who votes, and since when."""
    return offset <= log.end_offset and any(hole.start_offset < offset for hole in can.holes())


def _control_batches(log: ReplicatedLog, offset: Offset) -> Iterator[Batch]:
    """Yield the control batches from `offset` on, by reading everything."""
    while offset < log.end_offset:
        for batch in log.read(offset, SCAN_BYTES):
            if batch.is_control:
                yield batch
            offset = batch.last_offset + 1


def listen_endpoint(config: RaftConfig) -> Endpoint:
    """Return where to listen: with port 0, where the static voters expect this node, else on a free port.

    They may expect it on a Unix socket; `unix_socket` then is that one, beside a free port.
    """
    own = next((voter for voter in config.voters if voter.id == config.node_id), None)
    if config.listen.port == 0 and own is not None:
        if socket_path(own.endpoint.host) is not None:
            return own.endpoint if config.unix_endpoint is None else config.listen
        return Endpoint(config.listen.host, own.endpoint.port)
    return config.listen
