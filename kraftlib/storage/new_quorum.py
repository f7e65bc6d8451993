"""A log that goes on under other voters: after a restore, or when a majority is lost for good.

Raft has no way from one voter set to a disjoint one, so this is done to the files of a stopped replica, and it is said
in the log: a batch of a new epoch, beyond every epoch that was seen, with LeaderChange, and, where the voters stand in
the log, with the kraft.version and the new voters. A replica with the old voters is in an older epoch then, and is
fenced. Every new voter that begins with the same log and the same list makes the very same batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kraftlib.errors import ConfigError, ensure
from kraftlib.records.control import ControlRecord, encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.storage import files, names
from kraftlib.storage.bootstrap import InitialController, check_controllers, first_voters
from kraftlib.storage.election.line import encode_line
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.types import ElectionState, Epoch, OffsetAndEpoch, ReplicaId


def begin_new_quorum(
    partition: Path,
    *,
    epoch: Epoch,
    timestamp_ms: int,
    controllers: Sequence[InitialController] = (),
    static_voters: Sequence[ReplicaId] = (),
    listener_name: str = "CONTROLLER",
    file_mode: int = files.FILE_MODE,
) -> OffsetAndEpoch:
    """Let the log in `partition` go on in `epoch` with these voters; return its new end. No process may be using it.

    `controllers` are the voters of a dynamic quorum, and stand in the log from then on; those of a static one stand in
    the configuration, and are named here for the record only. Raises: ConfigError, StorageError.
    """
    if bool(controllers) == bool(static_voters):
        raise ConfigError("name the voters, either of a dynamic quorum or of a static one")
    ids = [controller.id for controller in controllers] or list(static_voters)
    voters = tuple(LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in ids)
    records: list[ControlRecord] = [LeaderChangeMessage(leader_id=min(ids), voters=voters, granting_voters=voters)]
    if controllers:
        check_controllers(controllers)
        records += [KRaftVersionRecord(kraft_version=1), first_voters(controllers, listener_name=listener_name)]
    _remove_increments(partition)
    # The epoch comes first: a log whose epoch is ahead of the vote would make an amnesiac of its replica.
    state = ElectionState(epoch=epoch)
    line = encode_line(state, kraft_version=1 if controllers else 0, voters=static_voters, generation=1)
    # The mirror goes first: it is of a later generation, beside which the vote in the new file would count as lost.
    if files.remove(partition / names.QUORUM_STATE_MIRROR):
        files.sync_directory(partition)
    files.replace_file(partition / names.QUORUM_STATE, line, mode=file_mode)
    log = FileReplicatedLog.open(partition, file_mode=file_mode)
    try:
        starts = log.epoch_starts()
        ensure(not starts or starts[-1].epoch < epoch, f"epoch {epoch} is not beyond those of the log")
        batch = encode_control_batch(records, timestamp_ms=timestamp_ms, base_offset=log.end_offset, epoch=epoch)
        log.append([batch])
        log.flush()
        return OffsetAndEpoch(offset=log.end_offset, epoch=epoch)
    finally:
        log.close()


def _remove_increments(partition: Path) -> None:
    """Remove what may reach beyond the log: a state that others had made durable was applied here before our own flush.

    The log goes on with other records, and no increment may stand in for them.
    """
    found = [name for name in files.list_names(partition) if names.parse_increment_name(name) is not None]
    for name in found:
        files.remove(partition / name)
    if found:
        files.sync_directory(partition)
