"""A replica's directory: made once by `format_directory`, opened at every start by `open_directory`.

Formatting writes what `kafka-storage format` would write, and `quorum-state` of epoch 0 on top, so that a replica that
finds no election state later knows that it was lost. `meta.properties` comes last: a format that was cut off leaves a
directory that is not formatted, and may be repeated.

Opening locks the directory, checks that it is this node's, recovers the log and reads the election state with the log
at hand, which says how old an election state may be.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, StorageError
from kraftlib.frozen import immutable
from kraftlib.storage import files, names
from kraftlib.storage.bootstrap import (
    DEFAULT_RELEASE,
    InitialController,
    check_controllers,
    feature_levels,
    first_voters,
    records_checkpoint,
    voters_checkpoint,
)
from kraftlib.storage.claim import check_partition, claim_directory
from kraftlib.storage.election.line import encode_line
from kraftlib.storage.election.store import FileQuorumStateStore, has_run
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.lock import DirectoryLock
from kraftlib.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kraftlib.storage.reserve import Reserve, is_full
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink
from kraftlib.types import BOOTSTRAP_SNAPSHOT, ElectionState, Endpoint, ReplicaId, new_uuid, uuid_text

_RESERVED_IDS: Final = 100


@immutable(kw_only=True)
class FormattedDirectory:
    """The identity of a formatted directory: its replica, cluster and first voters."""

    path: Path
    meta: MetaProperties
    is_new: bool
    """False, if it was formatted before and left alone."""

    @property
    def partition(self) -> Path:
        """Where log, snapshots and election state are."""
        return self.path / names.PARTITION_DIRECTORY


# Formatting ---------------------------------------------------------------------------------------


def format_directory(
    path: Path | str,
    *,
    node_id: ReplicaId,
    cluster_id: str,
    directory_id: uuid.UUID | None = None,
    standalone: Endpoint | None = None,
    initial_controllers: Sequence[InitialController] = (),
    no_initial_controllers: bool = False,
    static_voters: Sequence[ReplicaId] = (),
    release: str = DEFAULT_RELEASE,
    levels: Mapping[str, int] | None = None,
    listener_name: str = "CONTROLLER",
    ignore_formatted: bool = False,
    file_mode: int = files.FILE_MODE,
    now_ms: int | None = None,
    fill: Callable[[Path], object] | None = None,
) -> FormattedDirectory:
    """Make `path` the directory of a new replica. At most one of these says how its quorum begins:

    * `standalone`: with this node alone, which is reached there;
    * `initial_controllers`: with these voters, this node among them; the same list on each of them;
    * `no_initial_controllers`: it exists already, and this replica will be added to it;
    * none of them: its voters are static and stand in the configuration; `static_voters` may name them here, too.

    `release` is that of the Kafka controllers in the quorum, or of the oldest of them; without any it means nothing.
    `levels` are the feature levels with which the cluster begins, if they are not those of the release.
    `directory_id` is drawn unless given or known from `initial_controllers`. `ignore_formatted` leaves a directory
    alone that is formatted for this node and cluster already. `now_ms` is wall-clock time, for the stamps in the files.
    `fill` is given the new partition directory before the replica counts as formatted: cut off there, it is not.

    Raises: ConfigError for a combination that is impossible; StorageError, if the directory is formatted already, or
    holds a log.
    """
    path = Path(path)
    _check_ids(node_id, cluster_id, directory_id)
    levels = feature_levels(release) if levels is None else levels
    if (standalone is not None) + bool(initial_controllers) + no_initial_controllers + bool(static_voters) > 1:
        raise ConfigError("standalone, initial_controllers, no_initial_controllers, static_voters: choose one")
    if initial_controllers:
        directory_id = _own_directory_id(node_id, directory_id, initial_controllers)
    directory_id = directory_id or new_uuid()
    if standalone is not None:
        if standalone.port == 0:
            raise ConfigError(f"standalone={standalone}: others must know the port; name one that is free")
        initial_controllers = [InitialController(node_id, standalone, directory_id)]
    meta = MetaProperties(node_id=node_id, cluster_id=cluster_id, directory_id=directory_id)
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    _make_directories(path, file_mode=file_mode)
    lock = DirectoryLock.acquire(path, mode=file_mode)
    try:
        found = read_meta_properties(path)
        if found is not None:
            return _formatted_before(path, found, meta, ignore_formatted=ignore_formatted)
        formatted = FormattedDirectory(path=path, meta=meta, is_new=True)
        _make_partition(formatted.partition, file_mode=file_mode)
        if initial_controllers:
            voters = first_voters(initial_controllers, listener_name=listener_name)
            sink = FileSnapshotSink(formatted.partition, BOOTSTRAP_SNAPSHOT, file_mode=file_mode)
            sink.write(voters_checkpoint(voters, now_ms=now_ms))
            sink.freeze()
        kraft_version = 1 if initial_controllers else 0
        line = encode_line(ElectionState(), kraft_version=kraft_version, voters=static_voters, generation=0)
        files.replace_file(formatted.partition / names.QUORUM_STATE, line, mode=file_mode)
        records = records_checkpoint(now_ms=now_ms, levels=levels)
        files.replace_file(path / names.BOOTSTRAP_CHECKPOINT, records, mode=file_mode)
        if fill is not None:
            fill(formatted.partition)
        write_meta_properties(path, meta, now_ms=now_ms, file_mode=file_mode)
        return formatted
    finally:
        lock.release(remove=True)


def _check_ids(node_id: ReplicaId, cluster_id: str, directory_id: uuid.UUID | None) -> None:
    if not 0 <= node_id < 2**31:
        raise ConfigError(f"node_id={node_id} must be 0 to {2**31 - 1}")
    if not cluster_id or cluster_id != cluster_id.strip() or not cluster_id.isprintable():
        raise ConfigError(f"cluster_id={cluster_id!r} is no name: take what `kraftlib random-uuid` prints")
    if directory_id is not None and directory_id.int < _RESERVED_IDS:
        raise ConfigError(
            f"directory_id={uuid_text(directory_id)} is reserved: take what `kraftlib random-uuid` prints"
        )


def _own_directory_id(
    node_id: ReplicaId, directory_id: uuid.UUID | None, controllers: Sequence[InitialController]
) -> uuid.UUID:
    """Return the directory id that the initial controllers name for this node."""
    check_controllers(controllers)
    own = next((controller for controller in controllers if controller.id == node_id), None)
    listed = ",".join(map(str, controllers))
    if own is None:
        raise ConfigError(
            f"node_id={node_id} is not among the initial controllers {listed}: format it without them, and add it to"
            " the quorum later"
        )
    if directory_id not in (None, own.directory_id):
        raise ConfigError(f"directory_id={uuid_text(directory_id or own.directory_id)}, but the list has {own}")
    _check_ids(node_id, "listed", own.directory_id)
    return own.directory_id


def _formatted_before(
    path: Path, found: MetaProperties, wanted: MetaProperties, *, ignore_formatted: bool
) -> FormattedDirectory:
    if not ignore_formatted:
        raise StorageError(
            f"{path} is formatted already, for node {found.node_id} of cluster {found.cluster_id!r}: use it, or name"
            " another directory",
            path=path,
        )
    found.check(path, node_id=wanted.node_id, cluster_id=wanted.cluster_id)
    return FormattedDirectory(path=path, meta=found, is_new=False)


def _make_directories(path: Path, *, file_mode: int) -> None:
    """Make `path` and its missing parents, each durably."""
    if not path.parent.exists():
        _make_directories(path.parent, file_mode=file_mode)
    files.make_directory(path, mode=files.directory_mode(file_mode))


def _make_partition(partition: Path, *, file_mode: int) -> None:
    """Make the directory of the log; the remains of an interrupted format are made anew.

    Raises: StorageError, if a replica has run there: its log must not come under another directory id.
    """
    files.refuse_link(partition)
    if files.make_directory(partition, mode=files.directory_mode(file_mode)):
        return
    if has_run(partition) or FileQuorumStateStore(partition).read() not in (None, ElectionState()):
        raise StorageError(
            f"{partition} holds the log of a replica whose {names.META_PROPERTIES} is gone: restore that file, or name"
            " an empty directory; if a `kraftlib restore` was cut off here, remove it and restore again",
            path=partition,
        )
    files.remove(partition / names.checkpoint_name(BOOTSTRAP_SNAPSHOT))


# Opening ------------------------------------------------------------------------------------------


@immutable(kw_only=True)
class OpenDirectory:
    """The directory of a replica, owned by this process until the log is closed."""

    path: Path
    cluster_id: str
    directory_id: uuid.UUID
    log: FileReplicatedLog
    elections: FileQuorumStateStore

    def close(self) -> None:
        """Close log and election store, and give the directory back."""
        self.elections.close()
        self.log.close()


def open_directory(config: RaftConfig) -> OpenDirectory:
    """Lock the directory that `config` names and open what it holds.

    A start that finds the disk full gives the reserve back and begins once more: its writes may be repeated.

    Raises: NotFormattedError, DirectoryInUseError; ConfigError, if it is another node's or cluster's;
    CorruptBatchError, if the log is damaged; StorageError for all else. Nothing stays locked then.
    """
    if config.directory is None:
        raise ConfigError("directory is not set: there is nothing to open")
    path = config.directory
    partition = path / names.PARTITION_DIRECTORY
    reserve = Reserve(partition, size=config.disk_reserve_bytes, file_mode=config.file_mode)
    try:
        return reserve.spend(lambda: _open_directory(config, path, reserve))
    except StorageError as error:
        if not is_full(error):
            raise
        raise StorageError(
            f"the disk of {path} is full, and the reserve does not suffice: free some space and start again, nothing is"
            f" lost ({error})",
            path=path,
        ) from error


def _open_directory(config: RaftConfig, path: Path, reserve: Reserve) -> OpenDirectory:
    file_mode = config.file_mode
    claim = claim_directory(path, node_id=config.node_id, cluster_id=config.cluster_id, file_mode=file_mode)
    try:
        partition = path / names.PARTITION_DIRECTORY
        check_partition(partition, file_mode=file_mode)
        # Before anything is touched: the votes may be those of a newer release, or lost.
        FileQuorumStateStore(partition, file_mode=file_mode).read()
        log = FileReplicatedLog.open(
            partition,
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            file_mode=file_mode,
            reserve_bytes=config.segment_reserve_bytes,
            zero_fill=config.segment_zero_fill,
            reserve=reserve,
            sync_note=config.sync_note != "never",  # until the core says who votes, if that matters
            keep_damage=True,
            lock=claim.lock,
        )
    except BaseException:
        claim.lock.release()
        raise
    epochs = [*(start.epoch for start in log.epoch_starts()), *(snapshot.epoch for snapshot in log.snapshots()), 0]
    return OpenDirectory(
        path=path,
        cluster_id=claim.cluster_id,
        directory_id=claim.directory_id,
        log=log,
        elections=FileQuorumStateStore(
            partition, log_epoch=max(epochs), file_mode=file_mode, reserve=reserve, identity=claim.meta
        ),
    )
