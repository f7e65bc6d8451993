"""A replica with a past, whose files are then damaged: what stands in them, and what was promised of it.

Two ways to stop: killed, which leaves the newest notes behind the log; and closed, which leaves caches and a clean end.
And two ways to note how far the log is durable: synced with each flush, which is exact, or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

import tests.storage.crash.every_module  # noqa: F401 - else not all is watched
from kraftlib.config import RaftConfig
from kraftlib.records.batch import Batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.types import ElectionState, EpochStart, OffsetAndEpoch, ReplicaKey
from tests.storage.builders import TIMESTAMP, a_batch, snapshot_bytes
from tools.storage_proof.file_trace import FileTrace, Image

SEGMENT_BYTES = 3_000
CLUSTER = "images"


@attrs.frozen(kw_only=True)
class History:
    """What a directory holds, and held a moment earlier."""

    name: str
    image: Image
    earlier: Image
    """The same directory some operations before: what a lost write leaves."""
    batches: Mapping[int, bytes]
    """By base offset, everything that was acknowledged; a leader still has what this replica has deleted."""
    end_offset: int
    start_offset: int
    epochs: tuple[EpochStart, ...]
    snapshots: Mapping[OffsetAndEpoch, bytes]
    election: ElectionState


def config_of(directory: Path) -> RaftConfig:
    """Return the configuration with which it is opened; segments are smaller than anybody may ask for."""
    config = RaftConfig(node_id=1, cluster_id=CLUSTER, directory=directory)
    object.__setattr__(config, "segment_bytes", SEGMENT_BYTES)
    return config


def history(directory: Path, *, closed: bool, compacted: bool, exact: bool = False) -> History:
    """Let a replica live in a directory and stop.

    `compacted` is one whose log begins behind a snapshot, `exact` one that syncs its note.
    """
    format_directory(directory, node_id=1, cluster_id=CLUSTER, static_voters=[1, 2, 3])
    with FileTrace(directory) as trace:
        opened = open_directory(config_of(directory))
        log, elections = opened.log, opened.elections
        log.sync_note = exact
        elections.read()
        written: list[Batch] = []
        snapshots: dict[OffsetAndEpoch, bytes] = {}
        earlier = trace.image()
        for epoch in range(1, 6):
            elections.write(ElectionState(epoch=epoch, voted_key=ReplicaKey(2)), kraft_version=0, voters=[1, 2, 3])
            election = ElectionState(epoch=epoch, leader_id=2)
            if epoch == 5:
                earlier = trace.image()
            elections.write(election, kraft_version=0, voters=[1, 2, 3])
            more = [_leader_change(log.end_offset, epoch)]
            more += [a_batch(more[0].end_offset + number, epoch, size=60 + 150 * number) for number in range(6)]
            for batch in more:
                log.append([batch])
                log.flush()
            written += more
            if epoch == 3:
                snapshot_id = OffsetAndEpoch(offset=log.end_offset - 4, epoch=3)
                snapshots[snapshot_id] = snapshot_bytes(snapshot_id, records=5, size=200)
                sink = log.create_snapshot(snapshot_id)
                sink.write(snapshots[snapshot_id])
                sink.freeze()
                if compacted:
                    log.delete_before(snapshot_id)
                    log.flush()
        # Somebody stood once more, and got its vote: in an epoch of which no record tells.
        election = ElectionState(epoch=6, voted_key=ReplicaKey(2))
        elections.write(election, kraft_version=0, voters=[1, 2, 3])
        start_offset = log.start_offset
        epochs = tuple(log.epoch_starts())
        if closed:
            opened.close()
        image = trace.image()
        trace.restart()
    name = "closed" if closed else "killed"
    name += (", behind a snapshot" if compacted else "") + (", note synced" if exact else "")
    return History(
        name=name,
        image=image,
        earlier=earlier,
        batches={batch.base_offset: bytes(batch.data) for batch in written},
        end_offset=written[-1].last_offset + 1,
        start_offset=start_offset,
        epochs=epochs,
        snapshots=snapshots,
        election=election,
    )


def _leader_change(offset: int, epoch: int) -> Batch:
    message = LeaderChangeMessage(leader_id=2)
    return encode_control_batch([message], timestamp_ms=TIMESTAMP, base_offset=offset, epoch=epoch)
