"""A checkpoint that is put into the directory of a replica that has never run, for it to begin with.

Its election state must say the epoch of the checkpoint. Where it says less, the vote counts as lost, and the only
voter of a quorum does not start at all. A directory that has never run has voted in no epoch, so it may begin in this
one without a vote. Several voters of a new quorum may begin with the same checkpoint; the first election is one epoch
later.

The voters must fit, too: a checkpoint that names none, or others, takes the place of those with which the directory was
formatted, and the replica would wait for a leader for ever.
"""

from __future__ import annotations

from pathlib import Path

from kraftlib.errors import ConfigError
from kraftlib.records.control_messages import VotersRecord
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.storage import files, names
from kraftlib.storage.bootstrap import InitialController
from kraftlib.storage.election.line import encode_line
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.lock import DirectoryLock
from kraftlib.storage.meta_properties import read_meta_properties
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import BOOTSTRAP_SNAPSHOT, ElectionState, Endpoint, Epoch, uuid_text


def is_fresh(partition: Path) -> bool:
    """Whether this is the log's directory of a replica that is formatted and has never run."""
    if partition.name != names.PARTITION_DIRECTORY or not (partition / names.QUORUM_STATE).exists():
        return False
    if read_meta_properties(partition.parent) is None or (partition / names.HAS_RUN).exists():
        return False
    return not any(
        names.parse_segment_name(name) is not None and files.size_of(partition / name)
        for name in files.list_names(partition)
    )


def check_voters(partition: Path, voters: VotersRecord | None) -> None:
    """Check that a replica with these voters in its first checkpoint can start in `partition`, if that is fresh.

    Raises: ConfigError that names the voters with which the directory was formatted.
    """
    meta = read_meta_properties(partition.parent) if is_fresh(partition) else None
    if meta is None:
        return
    formatted = _formatted_voters(partition)
    static = (FileQuorumStateStore(partition).read() or ElectionState()).static_voters
    named = () if voters is None else voters.voters
    if not formatted and not (static and named):
        return
    if any((each.voter_id, each.voter_directory_id) == (meta.node_id, meta.directory_id) for each in named):
        return
    if formatted:
        remedy = f"say voters={formatted} (--voters)"
    else:
        remedy = (
            "format it with --standalone or --initial-controllers and name its voters, since a dynamic quorum stays one"
        )
    own = f"{meta.node_id} with directory id {uuid_text(meta.directory_id) if meta.directory_id else 'unknown'}"
    said = ", ".join(f"{each.voter_id}:{uuid_text(each.voter_directory_id)}" for each in named) or "none"
    raise ConfigError(
        f"{partition.parent} is formatted for node {own}, and the voters of the checkpoint are {said}, so it would"
        f" never find a leader: {remedy}, or write the checkpoint elsewhere and `kraftlib restore` it"
    )


def _formatted_voters(partition: Path) -> str:
    """Return the voters with which a dynamic quorum begins, as `--voters` reads them; empty for any other."""
    path = partition / names.checkpoint_name(BOOTSTRAP_SNAPSHOT)
    if not path.exists():
        return ""
    with SnapshotReader(FileSnapshotSource(path)) as reader:
        voters = () if reader.voters is None else reader.voters.voters
    return ",".join(
        str(
            InitialController(
                each.voter_id, Endpoint(each.endpoints[0].host, each.endpoints[0].port), each.voter_directory_id
            )
        )
        for each in voters
        if each.endpoints
    )


def begin_in(partition: Path, epoch: Epoch, *, kraft_version: int, file_mode: int = files.FILE_MODE) -> None:
    """Let the replica of a fresh directory begin in `epoch`, without a vote. Any other directory is left alone.

    Call it before the checkpoint gets its name: an epoch without its checkpoint does no harm, the reverse is a lost
    vote.
    Raises: DirectoryInUseError, if the replica has just been started.
    """
    if not is_fresh(partition):
        return
    lock = DirectoryLock.acquire(partition.parent, mode=file_mode)
    try:
        store = FileQuorumStateStore(partition, file_mode=file_mode)
        before = store.read() or ElectionState()
        if not is_fresh(partition) or before.amnesiac or before.epoch >= epoch:
            return
        line = encode_line(
            ElectionState(epoch=epoch), kraft_version=kraft_version, voters=before.static_voters, generation=1
        )
        files.replace_file(partition / names.QUORUM_STATE, line, mode=file_mode)
    finally:
        lock.release(remove=True)
