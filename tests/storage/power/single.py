"""One replica's storage under power cuts: appends, votes, truncations and snapshots, through the real classes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import attrs

from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
from kraftlib.storage.directory import format_directory
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.names import PARTITION_DIRECTORY
from kraftlib.types import ElectionState, Offset, OffsetAndEpoch, ReplicaKey
from tests.storage.power.process import Reports

SEGMENT_BYTES = 48 << 10
TIMESTAMP = 1_700_000_000_000


@attrs.define
class Promises:
    """What must be found after the next cut."""

    acknowledged: int = 0
    """Offsets below were said to be durable."""
    begun: list[int] = attrs.Factory(lambda: [0])
    """Epochs in which a vote was said to be durable, or was about to be: the last one, or the one after."""
    snapshots: set[tuple[int, int]] = attrs.Factory(set)
    truncating_to: int | None = None

    def take(self, lines: list[list[str]]) -> None:
        """Take note of what a child has reported."""
        for line in lines:
            match line[0]:
                case "flushed":
                    self.acknowledged = int(line[1])
                case "voting":
                    self.begun.append(int(line[1]))
                case "voted":
                    self.begun = [int(line[1])]
                case "frozen":
                    self.snapshots.add((int(line[1]), int(line[2])))
                case "truncating":
                    self.truncating_to = int(line[1])
                case "truncated":
                    self.acknowledged, self.truncating_to = int(line[1]), None
                case "deleting":
                    self.snapshots = {one for one in self.snapshots if one >= (int(line[1]), int(line[2]))}


def prepare(directory: Path) -> None:
    """Format the directory of a new replica."""
    format_directory(directory, node_id=1, cluster_id="power", static_voters=[1])


def value_at(offset: int, epoch: int) -> bytes:
    """Return the only value that may stand there: a function of its place."""
    digest = hashlib.sha256(b"%d@%d" % (offset, epoch)).digest()
    return b"%d@%d:" % (offset, epoch) + digest * (1 + digest[0] % 40)


def batch_at(offset: int, epoch: int, count: int) -> Batch:
    """Return a batch of such values."""
    values = [value_at(offset + number, epoch) for number in range(count)]
    return encode_batch(values, timestamp_ms=TIMESTAMP, base_offset=offset, epoch=epoch)


def write(directory: Path, seed: int, reports: Reports) -> None:
    """Do what a replica does, for ever."""
    chance = random.Random(seed)
    partition = directory / PARTITION_DIRECTORY
    log = FileReplicatedLog.open(partition, segment_bytes=SEGMENT_BYTES, sync_note=True)
    elections = FileQuorumStateStore(partition)
    epoch = max(1, (elections.read() or ElectionState()).epoch, *(start.epoch for start in log.epoch_starts()))
    reports.say("ready")
    while True:
        match chance.random():
            case draw if draw < 0.06:
                epoch += 1
                reports.say("voting", epoch)
                elections.write(ElectionState(epoch=epoch, voted_key=ReplicaKey(2)), kraft_version=0, voters=[1])
                reports.say("voted", epoch)
            case draw if draw < 0.09 and log.end_offset > _covered(log) + 4:
                log.flush()
                # What a snapshot covers is committed, and never cut; an earlier life may not have begun the log there.
                begin = _covered(log)
                somewhere = chance.randint(max(begin, log.end_offset - 40), log.end_offset - 1)
                end_offset = max(begin, log.read(somewhere, 1)[0].base_offset)
                reports.say("truncating", end_offset)
                end_offset = log.truncate(end_offset)
                reports.say("truncated", end_offset)
                epoch += 1  # what follows a truncation is of another epoch
            case draw if draw < 0.12 and log.end_offset > log.start_offset + 20:
                _snapshot(log, reports)
            case _:
                for _ in range(chance.randint(1, 4)):
                    log.append([batch_at(log.end_offset, epoch, chance.randint(1, 5))])
                reports.say("flushed", log.flush())


def _covered(log: FileReplicatedLog) -> Offset:
    """Return up to where a snapshot stands in for the log, be it that the log begins there or not yet."""
    return max([log.start_offset, *(snapshot.offset for snapshot in log.snapshots())])


def _snapshot(log: FileReplicatedLog, reports: Reports) -> None:
    reports.say("flushed", log.flush())
    snapshot_id = OffsetAndEpoch(offset=log.end_offset, epoch=log.epoch_starts()[-1].epoch)
    if snapshot_id in log.snapshots():
        return
    sink = log.create_snapshot(snapshot_id)
    writer = SnapshotWriter(sink.write, epoch=snapshot_id.epoch, last_contained_log_timestamp=TIMESTAMP)
    writer.append([value_at(snapshot_id.offset, snapshot_id.epoch)] * 20)
    writer.freeze()
    sink.freeze()
    reports.say("frozen", snapshot_id.offset, snapshot_id.epoch)
    reports.say("deleting", snapshot_id.offset, snapshot_id.epoch)
    log.delete_before(snapshot_id)


def losses(directory: Path, promises: Promises) -> Iterator[str]:
    """Open what is left with the real recovery; yield what is missing or wrong. What is there is promised from then."""
    partition = directory / PARTITION_DIRECTORY
    log = FileReplicatedLog.open(partition, segment_bytes=SEGMENT_BYTES, sync_note=True)
    try:
        floor = promises.acknowledged if promises.truncating_to is None else promises.truncating_to
        if log.end_offset < floor:
            yield f"the log ends at {log.end_offset}, {floor} was acknowledged"
        for batch in log.scan():
            for record in batch.records():
                if record.value != value_at(record.offset, batch.epoch):
                    yield f"record {record.offset} of epoch {batch.epoch} is not what was appended"
        election = FileQuorumStateStore(partition).read() or ElectionState()
        if election.epoch not in promises.begun:
            yield f"the vote is of epoch {election.epoch}, must be one of {promises.begun}"
        there = {(snapshot.offset, snapshot.epoch) for snapshot in log.snapshots()}
        if promises.snapshots - there:
            yield f"snapshots {promises.snapshots - there} are gone, there are {there}"
        for snapshot in log.snapshots():
            with SnapshotReader(log.open_snapshot(snapshot), epoch=snapshot.epoch) as reader:
                count = sum(1 for batch in reader.batches() if not batch.is_control for _ in batch.records())
            if count != 20:
                yield f"snapshot {snapshot} has {count} records of 20"
        promises.acknowledged, promises.truncating_to = log.end_offset, None
        promises.begun, promises.snapshots = [election.epoch], there
    finally:
        log.close()
