"""The checkpoint of an import: written, and read again."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import attrs

from kraftlib.compat.kazoo.source import Source
from kraftlib.controller.state import ClusterState
from kraftlib.controller.versions import encoded
from kraftlib.errors import ConfigError, ensure
from kraftlib.metadata.frame import decode_record
from kraftlib.migration.nodes import Nodes
from kraftlib.migration.records import METADATA_VERSION, Translation
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
from kraftlib.storage import files, names
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink, FileSnapshotSource, list_snapshots
from kraftlib.types import OffsetAndEpoch, new_uuid

EPOCH: Final = 1


@attrs.frozen(kw_only=True)
class Imported:
    """The result of an import."""

    checkpoint: Path
    cluster_id: str
    brokers: Sequence[int]
    """The ids of all that have replicas: a controller needs another one."""
    records: Mapping[str, int]
    """The number of records of each type, in the checkpoint as it was read again."""
    left_out: Sequence[str]

    def to_json(self) -> str:
        """Return it as one line."""
        told = {**attrs.asdict(self), "checkpoint": str(self.checkpoint), "metadata_version": METADATA_VERSION}
        return json.dumps(told)

    def __str__(self) -> str:
        counts = [f"  {count} {name}" for name, count in sorted(self.records.items())]
        brokers = f"brokers {', '.join(map(str, self.brokers))}: no controller may have one of these ids"
        left_out = [f"left out: {what}" for what in self.left_out]
        return "\n".join([f"{self.checkpoint}: cluster {self.cluster_id}", *counts, brokers, *left_out])


def import_nodes(
    source: Source,
    top: str,
    directory: Path,
    *,
    read_again: Callable[[], Source],
    progress: Callable[[int], object] = lambda count: None,
) -> Imported:
    """Write the metadata of Kafka below the node `top` as a checkpoint into `directory`, which may be new.

    The nodes are read again when it is written, and must be the same; the checkpoint is read again, too. `progress` is
    told of each node. Raises: ConfigError, StorageError; no checkpoint is there then.
    """
    files.make_directory(directory, mode=files.directory_mode(files.FILE_MODE))
    if list_snapshots(directory):
        raise ConfigError(f"{directory} has a checkpoint already: name a directory without one")
    translation = Translation(Nodes(source, top, progress), new_uuid)
    cluster_id = translation.cluster_id()
    state = ClusterState()
    count = 0
    for record in translation.records():
        state.replay(record)
        count += 1
    snapshot_id = OffsetAndEpoch(offset=count, epoch=EPOCH)
    sink = FileSnapshotSink(directory, snapshot_id)
    try:
        writer = SnapshotWriter(sink.write, epoch=EPOCH, last_contained_log_timestamp=time.time_ns() // 1_000_000)
        writer.append(encoded(record, METADATA_VERSION) for record in state.freeze())
        writer.freeze()
        if read_again() != source:
            raise ConfigError("ZooKeeper's nodes changed while they were read: stop all brokers, and what else writes")
        sink.freeze()
    finally:
        sink.abort()
    path = directory / names.checkpoint_name(snapshot_id)
    return Imported(
        checkpoint=path,
        cluster_id=cluster_id,
        brokers=sorted({broker for one in state.topics.partitions.values() for broker in one.replicas}),
        records=_verified(path, state),
        left_out=translation.left_out,
    )


def _verified(path: Path, wanted: ClusterState) -> Mapping[str, int]:
    """Read the checkpoint, compare it with what it was made of, and return how many records it has of each type."""
    state = ClusterState()
    counts: Counter[str] = Counter()
    with SnapshotReader(FileSnapshotSource(path), epoch=EPOCH) as reader:
        for value in chain.from_iterable(batch.values() for batch in reader.batches()):
            record, _ = decode_record(value)
            state.replay(record)
            counts[type(record).__name__] += 1
    both = zip(state.freeze(), wanted.freeze(), strict=True)
    ensure(
        all(encoded(one, METADATA_VERSION) == encoded(other, METADATA_VERSION) for one, other in both),
        f"{path} is read as other records than were written",
    )
    return counts
