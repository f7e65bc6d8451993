"""Checklist section 9: what stands in a snapshot file (SnapshotWriterReaderTest, RecordsSnapshotWriterTest)."""

from __future__ import annotations

import io
from pathlib import Path
from uuid import UUID

import pytest

from kraftlib.errors import ConfigError, CorruptBatchError
from kraftlib.records.batch import read_batches
from kraftlib.records.control import decode_control_batch, encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter, StreamSource
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from tests.consensus.build import voter_set

VOTERS = voter_set(ReplicaKey(1, UUID(int=1_001)), ReplicaKey(2, UUID(int=1_002))).to_record()


def written(*values: bytes, kraft_version: int = 0, voters: object = None) -> bytes:
    """The bytes of a frozen snapshot."""
    out = io.BytesIO()
    writer = SnapshotWriter(
        out.write,
        epoch=3,
        last_contained_log_timestamp=5,
        kraft_version=kraft_version,
        voters=voters,  # type: ignore[arg-type]
    )
    writer.append(values)
    writer.freeze()
    return out.getvalue()


def read(data: bytes) -> SnapshotReader:
    """A verified reader of such bytes."""
    reader = SnapshotReader(StreamSource(io.BytesIO(data)), epoch=3)
    reader.verify()
    return reader


def test_the_header_comes_first_and_the_footer_last() -> None:
    """SnapshotWriterReaderTest, RecordsSnapshotWriterTest: and between them the values, in batches."""
    first, *data, last = read_batches(written(b"a", b"b"))

    assert [record for _, record in decode_control_batch(first)] == [
        SnapshotHeaderRecord(last_contained_log_timestamp=5)
    ]
    assert [record for _, record in decode_control_batch(last)] == [SnapshotFooterRecord()]
    assert [value for batch in data for value in batch.values()] == [b"a", b"b"]


def test_voters_and_version_stand_there_from_kraft_version_1_on() -> None:
    """RecordsSnapshotWriterTest: with version 0 there are neither, whatever is handed over; ours wants the voters with
    version 1 when it writes, and reads a snapshot of Kafka that has none.
    """
    static = read(written(b"a", voters=VOTERS))
    assert (static.kraft_version, static.voters) == (0, None)
    dynamic = read(written(b"a", kraft_version=1, voters=VOTERS))
    assert (dynamic.kraft_version, dynamic.voters) == (1, VOTERS)
    with pytest.raises(ConfigError, match="names its voters"):
        written(kraft_version=1)
    header = [SnapshotHeaderRecord(last_contained_log_timestamp=5), KRaftVersionRecord(kraft_version=1)]
    batches = [
        encode_control_batch(header, timestamp_ms=5, base_offset=0, epoch=3),
        encode_control_batch([SnapshotFooterRecord()], timestamp_ms=5, base_offset=2, epoch=3),
    ]
    bare = read(b"".join(bytes(batch.data) for batch in batches))

    assert (bare.kraft_version, bare.voters) == (1, None)


def test_nothing_comes_behind_the_footer() -> None:
    """SnapshotWriterReaderTest, nothing after freeze: neither written nor read."""
    data = written(b"a")
    with pytest.raises(CorruptBatchError):
        read(data + data)


def test_a_snapshot_that_is_not_frozen_is_not_there(tmp_path: Path) -> None:
    """SnapshotWriterReaderTest, unfrozen file removed; FileRawSnapshotTest has the files themselves."""
    snapshot_id = OffsetAndEpoch(offset=1, epoch=1)
    for log in (MemoryReplicatedLog(), FileReplicatedLog.open(tmp_path)):
        sink = log.create_snapshot(snapshot_id)
        sink.write(b"half of it")
        sink.abort()
        assert not log.snapshots()
        log.close()

    assert not [path for path in tmp_path.iterdir() if "checkpoint" in path.name and "epoch" not in path.name]
