"""Directories of replicas as tests need them: formatted, with a log, checkpoints and a vote."""

from __future__ import annotations

from pathlib import Path

from kraftlib.records.batch import encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.storage import names
from kraftlib.storage.bootstrap import InitialController, first_voters
from kraftlib.storage.directory import format_directory
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.types import ElectionState, Endpoint, OffsetAndEpoch

CLUSTER = "old-cluster"


def partition_of(directory: Path) -> Path:
    return directory / names.PARTITION_DIRECTORY


def make_replica(
    directory: Path,
    node_id: int = 1,
    *,
    records: int = 20,
    epoch: int = 3,
    checkpoint: int | None = 10,
    voters: list[InitialController] | None = None,
    segment_bytes: int = 1 << 20,
) -> Path:
    """Make a stopped replica with so many records, two a batch, and a checkpoint; return its directory."""
    own = next((voter.directory_id for voter in voters or [] if voter.id == node_id), None)
    format_directory(
        directory,
        node_id=node_id,
        cluster_id=CLUSTER,
        directory_id=own,
        static_voters=[1, 2, 3] if voters is None else [],
        no_initial_controllers=voters is not None,
    )
    partition = partition_of(directory)
    log = FileReplicatedLog.open(partition, segment_bytes=segment_bytes)
    controls: list[object] = [LeaderChangeMessage(leader_id=node_id)]
    record: VotersRecord | None = None
    if voters is not None:
        record = first_voters(voters, listener_name="CONTROLLER")
        controls += [KRaftVersionRecord(kraft_version=1), record]
    log.append([encode_control_batch(controls, timestamp_ms=5, epoch=1)])  # type: ignore[arg-type]
    while log.end_offset < records:
        at = log.end_offset
        of = 1 if at < records // 2 else epoch
        log.append(
            [encode_batch([b"value %d" % at, b"value %d" % (at + 1)], timestamp_ms=at, base_offset=at, epoch=of)]
        )
        if checkpoint is not None and at < checkpoint <= log.end_offset:
            snapshot_id = OffsetAndEpoch(offset=log.end_offset, epoch=of)
            sink = log.create_snapshot(snapshot_id)
            writer = SnapshotWriter(
                sink.write,
                epoch=of,
                last_contained_log_timestamp=at,
                kraft_version=0 if record is None else 1,
                voters=record,
            )
            writer.append([b"state"])
            writer.freeze()
            sink.freeze()
    log.close()
    store = FileQuorumStateStore(partition, log_epoch=epoch)
    store.write(ElectionState(epoch=epoch), kraft_version=0 if record is None else 1, voters=[1, 2, 3])
    store.close()
    return directory


def controllers(*ids: int) -> list[InitialController]:
    from uuid import UUID

    return [
        InitialController(node_id, Endpoint("127.0.0.1", 9_000 + node_id), UUID(int=1_000 + node_id)) for node_id in ids
    ]
